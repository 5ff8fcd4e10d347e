"""Files of text and workbooks, read as tables with types."""
