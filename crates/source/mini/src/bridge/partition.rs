//! The canonical identity of a stream: `(source_partition, source_epoch, source_seq)`.

use std::fmt;
use std::sync::Arc;

use tidegate_core::{KeyspaceId, TableId};

/// The name of a stream: one physical table (or partition) of one keyspace. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourcePartition(Arc<str>);

impl SourcePartition {
    /// `keyspace:<id>/table:<id>`, or `table:<id>` without a keyspace (`spec/mini-cdc.md` §5.5 rule 1).
    pub fn of(keyspace: Option<KeyspaceId>, table: TableId) -> Self {
        Self(match keyspace {
            Some(keyspace) => format!("keyspace:{keyspace}/table:{table}").into(),
            None => format!("table:{table}").into(),
        })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SourcePartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// One, where counting begins.
            pub const FIRST: Self = Self(1);

            /// The number `n`, as it was stored; zero, which is never used, becomes one.
            pub const fn new(n: u64) -> Self {
                Self(if n == 0 { 1 } else { n })
            }

            /// The raw number, 1 or more.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The following number. 64 bits last for centuries at any rate that a machine can reach.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(
    /// Counts the lives of a stream: sequence numbers of different epochs do not compare. Grows when the
    /// adapter restarts or subscribes anew, never for DDL or progress (§5.5 rule 2).
    SourceEpoch
);
counter!(
    /// A row's number within its partition and epoch, 1-based and without gaps (§5.5 rule 3).
    SourceSeq
);
