//! The canonical mutation model: names, validation and fingerprints shared by adapter and fabric.
