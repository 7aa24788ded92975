"""What the methods are made of: anchors, matching, conventions, composition; no file here is a method."""
