"""Telemetry as others see it: dashboards, alert rules, collectors that are sick, receivers that we did not write."""
