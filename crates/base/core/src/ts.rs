//! Timestamps of PD's oracle (TSO) and the roles they play.
//!
//! A TSO is `physical milliseconds << 18 | logical` (`reference/pd-protocol.md` §5). Each role has its own
//! type, so that a resolved timestamp cannot be handed in where a commit timestamp is meant; crossing from
//! one role to another is an explicit, named call.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bits of the logical part of a TSO.
pub const LOGICAL_BITS: u32 = 18;
const LOGICAL_MASK: u64 = (1 << LOGICAL_BITS) - 1;

macro_rules! timestamp {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The smallest timestamp: before everything.
            pub const ZERO: Self = Self(0);
            /// The largest timestamp: after everything.
            pub const MAX: Self = Self(u64::MAX);

            /// Wraps a raw TSO.
            pub const fn new(tso: u64) -> Self {
                Self(tso)
            }

            /// Builds the TSO of `physical_ms` (Unix milliseconds) with logical part `logical`.
            pub const fn from_parts(physical_ms: u64, logical: u64) -> Self {
                Self((physical_ms << LOGICAL_BITS) + logical)
            }

            /// The raw TSO.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The physical part in Unix milliseconds.
            pub const fn physical_ms(self) -> u64 {
                self.0 >> LOGICAL_BITS
            }

            /// The logical part.
            pub const fn logical(self) -> u64 {
                self.0 & LOGICAL_MASK
            }

            /// The timestamp just before this one; zero stays zero.
            pub const fn prev(self) -> Self {
                Self(self.0.saturating_sub(1))
            }

            /// The timestamp just after this one; the maximum stays.
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }

            /// The same instant without a role, for comparing across roles.
            pub const fn ts(self) -> Ts {
                Ts(self.0)
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

timestamp!(
    /// A TSO without a role: a snapshot to read at, a plain "now", the common ground to compare roles on.
    Ts
);
timestamp!(
    /// When a transaction began. Also the exclusive lower bound from which a feed starts.
    StartTs
);
timestamp!(
    /// When a transaction was committed. The finished timestamp of a DDL job is one too: the commit
    /// timestamp of its done row.
    CommitTs
);
timestamp!(
    /// A promise: no change with a commit timestamp at or below it comes later (I3).
    ResolvedTs
);
timestamp!(
    /// Everything at or below it is durable downstream (I1, I4).
    CheckpointTs
);

macro_rules! roles {
    ($($fn_name:ident -> $role:ident),*) => {
        impl Ts {
            $(
                #[doc = concat!("This instant in the role of a [`", stringify!($role), "`].")]
                pub const fn $fn_name(self) -> $role {
                    $role(self.0)
                }
            )*
        }
    };
}
roles!(as_start -> StartTs, as_commit -> CommitTs, as_resolved -> ResolvedTs, as_checkpoint -> CheckpointTs);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_splits_into_the_parts_it_was_built_from() {
        // 2026-02-18 in Unix milliseconds, logical 7: arithmetic by hand is (ms << 18) + 7.
        let ts = CommitTs::from_parts(1_771_000_000_000, 7);
        assert_eq!(ts.get(), 1_771_000_000_000 * 262_144 + 7);
        assert_eq!((ts.physical_ms(), ts.logical()), (1_771_000_000_000, 7));
    }

    #[test]
    fn stepping_saturates_at_both_ends() {
        assert_eq!(Ts::ZERO.prev(), Ts::ZERO);
        assert_eq!(Ts::MAX.next(), Ts::MAX);
        assert_eq!(CommitTs::new(10).prev(), CommitTs::new(9));
    }
}
