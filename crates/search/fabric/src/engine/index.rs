//! The indexes of one collection: text and one vector index per vector field.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::Message;
use tantivy::Searcher;
use tidegate_proto::searchfabric::v1::field_data;

use crate::catalog::{Collection, Lineage, Uid};
use crate::content::Content;
use crate::error::FabricError;
use crate::ingest::Record;
use crate::store::Snapshot;
use crate::text::document::{components, document};
use crate::text::index::{TextIndex, text_paths};
use crate::text::layout::{Kind, Layout};
use crate::vector::{VectorIndex, VectorSnapshot};

/// What readers search.
#[derive(Clone)]
pub(crate) struct IndexView {
    pub(crate) layout: Arc<Layout>,
    pub(crate) searcher: Searcher,
    /// JSON paths that hold text.
    pub(crate) text_paths: Arc<BTreeSet<String>>,
    /// By field id.
    pub(crate) vectors: BTreeMap<i64, VectorSnapshot>,
}

impl std::fmt::Debug for IndexView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IndexView({} documents)", self.searcher.num_docs())
    }
}

/// The indexes of one collection.
pub(crate) struct CollectionIndex {
    lineage: Arc<Lineage>,
    layout: Arc<Layout>,
    text: TextIndex,
    vectors: BTreeMap<i64, VectorIndex>,
    /// What readers have; `None` after a change.
    published: Option<IndexView>,
}

/// How an index came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was there and complete, or lacked this many documents that were taken in.
    CaughtUp(usize),
    /// It was made from this many stored documents.
    Rebuilt(usize),
}

impl CollectionIndex {
    /// Opens the indexes of a collection under `root` and brings them to the state of the snapshot.
    pub(crate) fn open(
        root: Option<&Path>,
        collection: &Collection,
        snapshot: &Snapshot,
        group: u64,
    ) -> Result<(Self, Origin), FabricError> {
        let layout = Arc::new(Layout::new(&collection.lineage));
        let place = root.map(|root| place(root, collection.uid, &layout));
        let opened = TextIndex::open(place.as_deref(), layout.clone())?;
        let mut index = Self {
            lineage: collection.lineage.clone(),
            vectors: vector_indexes(&layout),
            layout,
            text: opened.index,
            published: None,
        };
        let missing = match opened.group {
            Some(held) if held <= group => snapshot.changed_since(collection.uid, held)?,
            _ => None,
        };
        let origin = match missing {
            Some(missing) => index.catch_up(collection.uid, snapshot, &missing)?,
            None => index.fill(collection.uid, snapshot)?,
        };
        index.text.commit(group)?;
        Ok((index, origin))
    }

    fn catch_up(&mut self, uid: Uid, snapshot: &Snapshot, missing: &[u64]) -> Result<Origin, FabricError> {
        for doc in missing {
            match snapshot.document(uid, *doc)? {
                Some(record) => self.put_text(*doc, &record, true)?,
                None => self.text.delete(*doc),
            }
        }
        if !self.vectors.is_empty() {
            for entry in snapshot.scan(uid, None)? {
                let (doc, record) = entry?;
                self.put_vectors(doc, &record)?;
            }
        }
        Ok(Origin::CaughtUp(missing.len()))
    }

    /// Takes in everything; the index must be empty.
    fn fill(&mut self, uid: Uid, snapshot: &Snapshot) -> Result<Origin, FabricError> {
        let mut documents = 0;
        for entry in snapshot.scan(uid, None)? {
            let (doc, record) = entry?;
            self.put_text(doc, &record, false)?;
            self.put_vectors(doc, &record)?;
            documents += 1;
        }
        Ok(Origin::Rebuilt(documents))
    }

    /// Whether it fits the collection's schema; a change of names alone is taken over.
    pub(crate) fn adopt(&mut self, collection: &Collection) -> bool {
        let layout = Layout::new(&collection.lineage);
        let fits = layout.digest == self.layout.digest;
        if fits {
            (self.lineage, self.layout) = (collection.lineage.clone(), Arc::new(layout));
            self.published = None;
        }
        fits
    }

    /// Takes in a document's newest version. `replaces` says whether it was there before.
    pub(crate) fn put(&mut self, doc: u64, record: &Record, replaces: bool) -> Result<(), FabricError> {
        self.published = None;
        self.put_text(doc, record, replaces)?;
        self.put_vectors(doc, record)
    }

    fn put_text(&mut self, doc: u64, record: &Record, replaces: bool) -> Result<(), FabricError> {
        let Some(content) = content(record)? else {
            self.text.delete(doc);
            return Ok(());
        };
        let fields = self.lineage.fields(&content, record.schema_version);
        let fields = fields.map(|(field, value)| (field.field_id, value));
        self.text.put(doc, document(&self.layout, doc, record.version, fields), replaces)
    }

    fn put_vectors(&mut self, doc: u64, record: &Record) -> Result<(), FabricError> {
        if self.vectors.is_empty() {
            return Ok(());
        }
        let content = content(record)?.unwrap_or_default();
        for (field, index) in &mut self.vectors {
            let value = content.get(*field).or_else(|| self.lineage.fill(*field, record.schema_version));
            let vector = value.and_then(|value| match &value.value {
                Some(field_data::Value::VectorValue(vector)) => components(vector),
                _ => None,
            });
            let stored = record.is_live() && vector.is_some_and(|vector| index.put(doc, &vector));
            if !stored {
                index.remove(doc);
            }
        }
        Ok(())
    }

    /// Makes everything so far searchable.
    pub(crate) fn publish(&mut self, group: u64) -> Result<IndexView, FabricError> {
        if let Some(published) = &self.published {
            return Ok(published.clone());
        }
        self.text.commit(group)?;
        let searcher = self.text.searcher();
        let view = IndexView {
            text_paths: Arc::new(text_paths(&searcher, &self.layout)?),
            layout: self.layout.clone(),
            searcher,
            vectors: self.vectors.iter().map(|(field, index)| (*field, index.snapshot())).collect(),
        };
        self.published = Some(view.clone());
        Ok(view)
    }

    /// Its folder, if it has one.
    pub(crate) fn place(&self) -> Option<PathBuf> {
        self.text.place().map(Path::to_owned)
    }

    /// Ends background work.
    pub(crate) fn close(self) -> Result<(), FabricError> {
        self.text.close()
    }
}

/// The folder of an index: one per layout, so that a new layout never meets files of an old one.
fn place(root: &Path, uid: Uid, layout: &Layout) -> PathBuf {
    root.join(format!("{}-{}", uid.0, layout.digest))
}

fn vector_indexes(layout: &Layout) -> BTreeMap<i64, VectorIndex> {
    let vectors = layout.fields.iter().filter_map(|plan| match plan.kind {
        Kind::Vector { dimensions, metric } => Some((plan.id, VectorIndex::new(dimensions, metric))),
        _ => None,
    });
    vectors.collect()
}

/// The content of a live document.
pub(crate) fn content(record: &Record) -> Result<Option<Content>, FabricError> {
    let decode = |bytes: &Vec<u8>| Content::decode(bytes.as_slice());
    let content = record.content.as_ref().map(decode).transpose();
    content.map_err(|error| FabricError::Damaged(format!("a stored document cannot be read: {error}")))
}
