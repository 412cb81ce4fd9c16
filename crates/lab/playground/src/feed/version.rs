//! What a client's version decides (`reference/cdc-protocol.md` §1).

/// A client's semantic version, without its pre-release part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientVersion(u64, u64, u64);

impl ClientVersion {
    /// A client that did not say.
    pub(crate) const UNKNOWN: Self = Self(0, 0, 0);
    const BATCHED_RESOLVED: Self = Self(4, 0, 8);
    const CLUSTER_ID_CHECKED: Self = Self(5, 3, 0);

    /// Reads `8.5.4-alpha` and the like; anything else is unknown.
    pub(crate) fn parse(text: &str) -> Self {
        let release = text.split(['-', '+']).next().unwrap_or_default();
        let mut parts = release.split('.').map(str::parse);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) => Self(major, minor, patch),
            _ => Self::UNKNOWN,
        }
    }

    pub(crate) fn takes_batched_resolved(self) -> bool {
        self >= Self::BATCHED_RESOLVED
    }

    pub(crate) fn has_cluster_id_checked(self) -> bool {
        self >= Self::CLUSTER_ID_CHECKED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number_and_bad_ones_are_oldest() {
        assert_eq!(ClientVersion::parse("8.5.4-nextgen.202510.5"), ClientVersion(8, 5, 4));
        assert!(ClientVersion::parse("4.0.8").takes_batched_resolved());
        assert!(!ClientVersion::parse("4.0.7").takes_batched_resolved());
        assert!(!ClientVersion::parse("5.2.9").has_cluster_id_checked());
        for bad in ["", "v8.5.4", "8.5", "8.5.4.1", "a.b.c"] {
            assert_eq!(ClientVersion::parse(bad), ClientVersion::UNKNOWN, "{bad}");
        }
    }
}
