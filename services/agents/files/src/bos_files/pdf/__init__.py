"""PDF files from text and Markdown."""
