"""Generators of the sample company's rows, one module per part of the business."""
