//! A client of the placement driver: timestamps, regions, stores, keyspaces and GC barriers.
