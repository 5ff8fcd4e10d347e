"""The ``bos`` command line: asking, following and deciding runs; evaluation of question sets."""
