"""The database: engine, tables, migrations, group commit."""
