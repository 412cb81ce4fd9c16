//! One tantivy index: opened or made anew, written in groups, searched in snapshots.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tantivy::indexer::{IndexWriterOptions, LogMergePolicy};
use tantivy::tokenizer::{LowerCaser, RawTokenizer, TextAnalyzer, TokenizerManager};
use tantivy::{Index, IndexReader, IndexWriter, ReloadPolicy, Searcher, TantivyDocument, Term};

use super::analysis::{InnerTokenizer, WordTokenizer};
use super::directory::UnsyncedDirectory;
use super::layout::{INNER, KEYWORD, Layout, TEXT_PATH, WORDS};
use crate::error::FabricError;

/// Memory one index may use for documents that are not yet in a segment. Groups are committed long before
/// it is full; only a rebuild reaches it.
const WRITER_BYTES: usize = 32 << 20;
/// JSON paths with text that a query without fields looks into. A table with more than that uses member
/// names as data; such a query then sees the first of them in order.
const TEXT_PATHS_MAX: usize = 256;
/// Share of deleted documents from which a segment is rewritten. Updates are deletes here, and every deleted
/// document still costs time in each query.
const DELETED_RATIO_MAX: f32 = 0.25;

/// The index of a collection.
pub(crate) struct TextIndex {
    layout: Arc<Layout>,
    writer: IndexWriter,
    reader: IndexReader,
    dirty: bool,
    place: Option<PathBuf>,
}

/// An index that was opened, and how far it had come.
pub(crate) struct Opened {
    pub(crate) index: TextIndex,
    /// The last group of batches that it holds; `None` if it is empty and must be filled from the store.
    pub(crate) group: Option<u64>,
}

impl TextIndex {
    /// Opens the index in `place`, or makes an empty one if there is none, if it is damaged or if it has
    /// another layout. Without a place it lives in memory.
    pub(crate) fn open(place: Option<&Path>, layout: Arc<Layout>) -> Result<Opened, FabricError> {
        if let Some(place) = place.filter(|place| place.exists()) {
            match Self::reopen(place, &layout) {
                Ok(opened) => return Ok(opened),
                Err(error) => {
                    tracing::warn!(%error, "the text index cannot be used and is made anew");
                    std::fs::remove_dir_all(place).map_err(|source| data_dir(place, source))?;
                }
            }
        }
        Ok(Opened { index: Self::create(place, layout)?, group: None })
    }

    fn reopen(place: &Path, layout: &Arc<Layout>) -> Result<Opened, FabricError> {
        let directory = UnsyncedDirectory::open(place).map_err(tantivy::TantivyError::from)?;
        let mut index = Index::open(directory)?;
        let damaged = index.validate_checksum()?;
        if !damaged.is_empty() || index.schema() != layout.schema {
            let detail = format!("{} damaged files, or another layout", damaged.len());
            return Err(FabricError::Damaged(detail));
        }
        index.set_tokenizers(tokenizers());
        let group = index.load_metas()?.payload.and_then(|payload| payload.parse().ok());
        let index = Self::with(index, layout.clone(), Some(place.to_owned()))?;
        Ok(Opened { index, group })
    }

    fn create(place: Option<&Path>, layout: Arc<Layout>) -> Result<Self, FabricError> {
        let builder = Index::builder().schema(layout.schema.clone()).tokenizers(tokenizers());
        let index = match place {
            None => builder.create_in_ram()?,
            Some(place) => {
                std::fs::create_dir_all(place).map_err(|source| data_dir(place, source))?;
                let directory = UnsyncedDirectory::open(place).map_err(tantivy::TantivyError::from)?;
                builder.open_or_create(directory)?
            }
        };
        Self::with(index, layout, place.map(Path::to_owned))
    }

    fn with(index: Index, layout: Arc<Layout>, place: Option<PathBuf>) -> Result<Self, FabricError> {
        let options = IndexWriterOptions::builder()
            .memory_budget_per_thread(WRITER_BYTES)
            .num_worker_threads(1)
            .num_merge_threads(1)
            .build();
        let writer: IndexWriter = index.writer_with_options(options)?;
        let mut merges = LogMergePolicy::default();
        merges.set_del_docs_ratio_before_merge(DELETED_RATIO_MAX);
        writer.set_merge_policy(Box::new(merges));
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
        Ok(Self { layout, writer, reader, dirty: false, place })
    }

    /// Its folder, if it has one.
    pub(crate) fn place(&self) -> Option<&Path> {
        self.place.as_deref()
    }

    /// Adds a document; `replaces` says whether an earlier version of it may be in the index.
    pub(crate) fn put(
        &mut self,
        id: u64,
        document: TantivyDocument,
        replaces: bool,
    ) -> Result<(), FabricError> {
        if replaces {
            self.delete(id);
        }
        self.dirty = true;
        self.writer.add_document(document)?;
        Ok(())
    }

    /// Removes a document.
    pub(crate) fn delete(&mut self, id: u64) {
        self.dirty = true;
        self.writer.delete_term(Term::from_field_u64(self.layout.id, id));
    }

    /// Makes everything so far searchable, if anything changed. `group` is what it then holds.
    pub(crate) fn commit(&mut self, group: u64) -> Result<(), FabricError> {
        if !self.dirty {
            return Ok(());
        }
        let mut prepared = self.writer.prepare_commit()?;
        prepared.set_payload(&group.to_string());
        prepared.commit()?;
        self.reader.reload()?;
        self.dirty = false;
        Ok(())
    }

    /// What is searchable now.
    pub(crate) fn searcher(&self) -> Searcher {
        self.reader.searcher()
    }

    /// Ends background merges, so that the folder is quiet.
    pub(crate) fn close(self) -> Result<(), FabricError> {
        self.writer.wait_merging_threads()?;
        Ok(())
    }
}

fn data_dir(path: &Path, source: std::io::Error) -> FabricError {
    FabricError::DataDir { path: path.to_owned(), source }
}

fn tokenizers() -> TokenizerManager {
    let manager = TokenizerManager::default();
    manager.register(WORDS, WordTokenizer);
    manager.register(INNER, InnerTokenizer);
    let keyword = TextAnalyzer::builder(RawTokenizer::default()).filter(LowerCaser).build();
    manager.register(KEYWORD, keyword);
    manager
}

/// The JSON paths that hold text anywhere in the index: the root (a field id) and the path below it.
pub(crate) fn text_paths(searcher: &Searcher, layout: &Layout) -> Result<BTreeSet<String>, FabricError> {
    let mut paths = BTreeSet::new();
    let after = TEXT_PATH.replace(':', ";");
    for segment in searcher.segment_readers() {
        let inverted = segment.inverted_index(layout.has)?;
        let mut terms =
            inverted.terms().range().ge(TEXT_PATH).lt(after.as_bytes()).into_stream().map_err(io)?;
        while terms.advance() && paths.len() < TEXT_PATHS_MAX {
            let term = std::str::from_utf8(terms.key()).unwrap_or_default();
            paths.extend(term.strip_prefix(TEXT_PATH).map(str::to_owned));
        }
    }
    Ok(paths)
}

fn io(error: std::io::Error) -> FabricError {
    FabricError::Index(error.into())
}
