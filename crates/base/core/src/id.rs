//! Ids: one type each, so that a region is never taken for a store.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The raw number.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

id!(
    /// A PD cluster; random and fixed for the cluster's life.
    ClusterId(u64)
);
id!(
    /// A region: a range of keys replicated as one raft group.
    RegionId(u64)
);
id!(
    /// A TiKV store.
    StoreId(u64)
);
id!(
    /// One replica of a region.
    PeerId(u64)
);
id!(
    /// A table, or a physical partition of one: both come from one sequence and share the key layout.
    TableId(i64)
);
id!(
    /// A database (TiDB calls it a schema).
    SchemaId(i64)
);
id!(
    /// A column; stable for the column's life and never reused within its table.
    ColumnId(i64)
);
id!(
    /// An index of a table.
    IndexId(i64)
);
id!(
    /// A DDL job.
    JobId(i64)
);
id!(
    /// A keyspace (API V2). Ids fit 24 bits; a classic cluster has none.
    KeyspaceId(u32)
);
