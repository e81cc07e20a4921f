"""Reports that people look at: one page of HTML, or Markdown, made of what a run's records say."""
