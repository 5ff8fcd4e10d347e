"""What tests of the gateway stand on."""
