//! The Mini-CDC runtime: rows, DDL and checkpoints of a set of tables through three callbacks.
