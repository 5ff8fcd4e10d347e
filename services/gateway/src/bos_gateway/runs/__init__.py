"""The runs of this process: accepted, adopted, driven, followed."""
