//! Every document of the index against the upstream's rows at the index's own `safe_ts`.

use std::collections::BTreeMap;

use tidegate_codec::meta::SqlType;
use tidegate_core::{ResolvedTs, Ts};
use tidegate_proto::searchfabric::v1 as sf;
use tidegate_puller::kv::SnapshotReader;

use super::document::{Fields, of_index};
use super::upstream::{self, Table};
use super::{Index, SCHEMA, freshness_wait, refused, selector};
use crate::failure::Failure;

/// Differences that are shown; more do not help.
const SHOWN_MAX: usize = 20;

/// What a comparison found.
pub(crate) struct Comparison {
    pub(crate) documents: usize,
    pub(crate) collections: usize,
    pub(crate) safe_ts: ResolvedTs,
    pub(crate) index_digest: String,
    pub(crate) upstream_digest: String,
    pub(crate) differences: usize,
    pub(crate) shown: Vec<String>,
}

impl Comparison {
    /// Whether index and upstream are the same, document by document.
    pub(crate) fn is_equal(&self) -> bool {
        self.differences == 0 && self.index_digest == self.upstream_digest
    }
}

/// Compares all collections. Nothing may be committed upstream from `from` on until this returns.
pub(crate) async fn compare(
    reader: &SnapshotReader,
    index: &mut Index,
    from: Ts,
) -> Result<Comparison, Failure> {
    let tables = upstream::tables(reader, SCHEMA, from).await?;
    let mut found = Finding::default();
    for table in &tables {
        let (documents, safe_ts) = scan(index, table, from).await?;
        let rows = upstream::documents(reader, table, safe_ts.ts()).await?;
        found.collection(&table.name, &documents, &rows, safe_ts);
    }
    found.surplus(&collections(index).await?, &tables);
    Ok(found.finish(tables.len()))
}

#[derive(Default)]
struct Finding {
    documents: usize,
    safe_ts: Option<ResolvedTs>,
    index: blake3::Hasher,
    upstream: blake3::Hasher,
    differences: usize,
    shown: Vec<String>,
}

impl Finding {
    fn collection(
        &mut self,
        name: &str,
        documents: &BTreeMap<u64, Fields>,
        rows: &BTreeMap<u64, Fields>,
        safe_ts: ResolvedTs,
    ) {
        self.documents += documents.len();
        self.safe_ts = Some(self.safe_ts.map_or(safe_ts, |other| other.min(safe_ts)));
        digest(&mut self.index, name, documents);
        digest(&mut self.upstream, name, rows);
        let ids = documents.keys().chain(rows.keys().filter(|id| !documents.contains_key(id)));
        for id in ids {
            for line in differences(documents.get(id), rows.get(id)) {
                self.difference(format!("{name} {id}: {line}"));
            }
        }
    }

    /// Collections of the index that no table stands behind.
    fn surplus(&mut self, collections: &[String], tables: &[Table]) {
        for name in collections.iter().filter(|name| !tables.iter().any(|table| table.name == **name)) {
            self.difference(format!("{name}: in the index, but there is no such table"));
        }
    }

    fn difference(&mut self, line: String) {
        self.differences += 1;
        if self.shown.len() < SHOWN_MAX {
            self.shown.push(line);
        }
    }

    fn finish(self, collections: usize) -> Comparison {
        Comparison {
            documents: self.documents,
            collections,
            safe_ts: self.safe_ts.unwrap_or_default(),
            index_digest: self.index.finalize().to_hex().to_string(),
            upstream_digest: self.upstream.finalize().to_hex().to_string(),
            differences: self.differences,
            shown: self.shown,
        }
    }
}

/// Adds every document, in id order, to the hash; lengths keep neighbouring parts apart.
fn digest(hash: &mut blake3::Hasher, name: &str, documents: &BTreeMap<u64, Fields>) {
    let mut part = |text: &str| {
        hash.update(&text.len().to_le_bytes());
        hash.update(text.as_bytes());
    };
    part(name);
    for (id, fields) in documents {
        part(&id.to_string());
        for (field, text) in fields {
            part(field);
            part(text);
        }
    }
}

fn differences(document: Option<&Fields>, row: Option<&Fields>) -> Vec<String> {
    match (document, row) {
        (Some(document), Some(row)) => {
            let names = row.keys().chain(document.keys().filter(|name| !row.contains_key(*name)));
            let unequal = names.filter(|name| document.get(*name) != row.get(*name));
            let show =
                |fields: &Fields, name: &str| fields.get(name).map_or("missing", String::as_str).to_owned();
            unequal
                .map(|name| format!("{name} is {}, upstream {}", show(document, name), show(row, name)))
                .collect()
        }
        (Some(_), None) => vec!["in the index, but there is no such row".to_owned()],
        (None, Some(_)) => vec!["there is a row, but no document".to_owned()],
        (None, None) => Vec::new(),
    }
}

/// All documents of one collection from one state that contains everything up to `from`.
async fn scan(
    index: &mut Index,
    table: &Table,
    from: Ts,
) -> Result<(BTreeMap<u64, Fields>, ResolvedTs), Failure> {
    let request = sf::ScanRequest {
        collection: Some(selector(&table.name)),
        consistency: Some(freshness_wait(from)),
        ..sf::ScanRequest::default()
    };
    let mut answers = index.query.scan(request).await.map_err(refused("Scan"))?.into_inner();
    let info = table.layout.table();
    let is_json = |name: &str| {
        info.column_by_name(name).is_some_and(|(_, column)| column.field_type.tp == SqlType::Json)
    };
    let (mut documents, mut safe_ts) = (BTreeMap::new(), ResolvedTs::ZERO);
    while let Some(answer) = answers.message().await.map_err(refused("Scan"))? {
        safe_ts = ResolvedTs::new(answer.freshness.map_or(0, |freshness| freshness.safe_ts));
        for document in answer.documents {
            documents.insert(document.doc_id, of_index(&document, is_json)?);
        }
    }
    Ok((documents, safe_ts))
}

async fn collections(index: &mut Index) -> Result<Vec<String>, Failure> {
    let answer = index.catalog.list_collections(sf::ListCollectionsRequest::default()).await;
    let answer = answer.map_err(refused("ListCollections"))?.into_inner();
    Ok(answer.collections.into_iter().map(|one| one.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn one_changed_field_changes_the_digest_and_is_named() {
        let documents = BTreeMap::from([(7, fields(&[("a", "int 1"), ("b", "null")]))]);
        let rows = BTreeMap::from([(7, fields(&[("a", "int 2"), ("b", "null")]))]);
        let mut found = Finding::default();
        found.collection("d.t", &documents, &rows, ResolvedTs::new(5));
        let comparison = found.finish(1);
        assert!(!comparison.is_equal());
        assert_ne!(comparison.index_digest, comparison.upstream_digest);
        assert_eq!(comparison.shown, ["d.t 7: a is int 1, upstream int 2"]);
    }

    #[test]
    fn documents_and_rows_without_a_partner_are_named() {
        let one = |id| BTreeMap::from([(id, fields(&[("a", "int 1")]))]);
        let mut found = Finding::default();
        found.collection("d.t", &one(1), &one(2), ResolvedTs::new(5));
        let shown = found.finish(1).shown;
        assert_eq!(
            shown,
            ["d.t 1: in the index, but there is no such row", "d.t 2: there is a row, but no document"]
        );
    }

    #[test]
    fn equal_content_is_equal() {
        let documents = BTreeMap::from([(7, fields(&[("a", "int 1")]))]);
        let mut found = Finding::default();
        found.collection("d.t", &documents, &documents.clone(), ResolvedTs::new(5));
        let comparison = found.finish(1);
        assert!(comparison.is_equal());
        assert_eq!((comparison.documents, comparison.safe_ts), (1, ResolvedTs::new(5)));
    }
}
