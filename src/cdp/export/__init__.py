"""Groups of images out again, in the layouts that other programs read; and corrections made there back in."""
