//! The project toolbox.
fn main() {}
