"""What people look at: messages as HTML, and the parts it is made of. No I/O."""
