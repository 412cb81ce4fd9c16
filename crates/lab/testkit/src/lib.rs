//! Recorded histories and what TiDB answered: loading and comparing.
