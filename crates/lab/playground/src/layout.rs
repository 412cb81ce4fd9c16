//! How a loaded history is divided into regions: each table in its own, and more until there are enough.

use std::collections::BTreeSet;

use bytes::Bytes;
use tidegate_codec::key::{strip_keyspace, to_region_key};
use tidegate_testkit::History;

/// `t` and the eight bytes of a table id.
const TABLE_PREFIX_BYTES: usize = 9;

/// Encoded keys at which regions begin. There are at least `regions_min` regions if the history has that many
/// keys.
pub(crate) fn split_keys(history: &History, regions_min: usize) -> BTreeSet<Bytes> {
    let keys: BTreeSet<&Bytes> =
        history.base.iter().chain(&history.log).map(|version| &version.key).collect();
    let mut splits: BTreeSet<Bytes> =
        keys.iter().filter_map(|key| table_prefix(key)).map(|prefix| to_region_key(prefix).into()).collect();
    let wanted = regions_min.saturating_sub(1);
    if splits.len() < wanted {
        splits.extend(evenly(&keys, wanted - splits.len()));
    }
    splits
}

/// The part of a raw key that names its table, with its keyspace.
fn table_prefix(key: &[u8]) -> Option<&[u8]> {
    let (_, rest) = strip_keyspace(key);
    let keyspace_bytes = key.len() - rest.len();
    rest.starts_with(b"t").then(|| key.get(..keyspace_bytes + TABLE_PREFIX_BYTES)).flatten()
}

/// About `count` keys at equal distances among the keys of tables.
fn evenly(keys: &BTreeSet<&Bytes>, count: usize) -> impl Iterator<Item = Bytes> {
    let of_tables: Vec<&Bytes> = keys.iter().copied().filter(|key| table_prefix(key).is_some()).collect();
    (1..=count)
        .filter_map(move |n| of_tables.get(n * of_tables.len() / (count + 1)).map(|key| to_region_key(key)))
        .map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use tidegate_codec::key::table_prefix;
    use tidegate_core::TableId;
    use tidegate_testkit::data;

    use super::*;

    #[test]
    fn every_table_begins_a_region_and_more_are_cut_until_there_are_enough() {
        let history = data::history("bank").expect("recorded data");
        let by_table = split_keys(&history, 0);
        // Table ids of the recording: data README.
        for table in [320, 322] {
            assert!(by_table.contains(to_region_key(&table_prefix(None, TableId(table))).as_slice()));
        }
        let more = split_keys(&history, 60);
        assert!(more.is_superset(&by_table));
        assert!((50..=59).contains(&more.len()), "{} split keys", more.len());
    }
}
