"""Plain functions from DataFrame to DataFrame for what pipelines over topics need again and again."""
