//! The thread that makes durable groups searchable.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::index::{CollectionIndex, Origin};
use super::shared::{CollectionView, Shared, View};
use super::writer::{Group, Pending};
use crate::catalog::{Catalog, Collection, Uid};
use crate::error::FabricError;
use crate::store::Snapshot;

/// Groups taken in before one publication, so that a burst of small groups does not make one segment each.
const GROUPS_PER_PUBLICATION: usize = 32;

/// The state of the thread.
pub(crate) struct Indexer {
    shared: Arc<Shared>,
    root: Option<PathBuf>,
    indexes: BTreeMap<Uid, CollectionIndex>,
}

impl Indexer {
    /// Opens every collection's indexes, brings them to the state of the snapshot and publishes it.
    pub(crate) fn open(
        shared: Arc<Shared>,
        root: Option<PathBuf>,
        catalog: Catalog,
        snapshot: Snapshot,
        group: u64,
    ) -> Result<Self, FabricError> {
        let mut indexer = Self { shared, root, indexes: BTreeMap::new() };
        for collection in catalog.all().filter(|collection| collection.dropped.is_none()) {
            indexer.make(collection, &snapshot, group)?;
        }
        indexer.sweep()?;
        indexer.shared.set_catalog(catalog.clone());
        indexer.publish(catalog, snapshot, group)?;
        Ok(indexer)
    }

    fn make(&mut self, collection: &Collection, snapshot: &Snapshot, group: u64) -> Result<(), FabricError> {
        let root = self.root.as_deref();
        let (index, origin) = CollectionIndex::open(root, collection, snapshot, group)?;
        match origin {
            Origin::CaughtUp(0) | Origin::Rebuilt(0) => {}
            Origin::CaughtUp(documents) => {
                self.shared.log("index_caught_up", Some(collection), format!("{documents} documents"));
            }
            Origin::Rebuilt(documents) => {
                self.shared.log("index_rebuilt", Some(collection), format!("{documents} documents"));
            }
        }
        self.indexes.insert(collection.uid, index);
        Ok(())
    }

    /// Deletes folders of indexes that no collection uses.
    fn sweep(&self) -> Result<(), FabricError> {
        let Some(root) = &self.root else { return Ok(()) };
        let used: BTreeSet<PathBuf> = self.indexes.values().filter_map(CollectionIndex::place).collect();
        let failed = |source| FabricError::DataDir { path: root.clone(), source };
        for entry in std::fs::read_dir(root).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() && !used.contains(&path) {
                std::fs::remove_dir_all(&path).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Works until the writer is gone. After a failure every group is answered with it.
    pub(crate) fn run(mut self, groups: &Receiver<Group>) {
        while let Ok(first) = groups.recv() {
            let mut taken = vec![first];
            taken.extend(groups.try_iter().take(GROUPS_PER_PUBLICATION - 1));
            let mut pending = Vec::new();
            let result = if self.shared.poisoned().is_some() {
                pending.extend(taken.into_iter().flat_map(|group| group.pending));
                Err(FabricError::Stopped)
            } else {
                self.take(taken, &mut pending)
            };
            if let Err(error) = &result {
                self.shared.poison(error);
            }
            pending.into_iter().for_each(|pending| pending.answer(result.is_ok()));
        }
        for (_, index) in std::mem::take(&mut self.indexes) {
            if let Err(error) = index.close() {
                tracing::warn!(%error, "an index did not end its merges; they are repeated");
            }
        }
    }

    fn take(&mut self, groups: Vec<Group>, pending: &mut Vec<Pending>) -> Result<(), FabricError> {
        let mut last = None;
        let mut failure = Ok(());
        for mut group in groups {
            pending.append(&mut group.pending);
            failure = failure.and_then(|()| self.apply(&group));
            last = Some(group);
        }
        failure?;
        match last {
            Some(group) => self.publish(group.catalog, group.snapshot, group.number),
            None => Ok(()),
        }
    }

    fn apply(&mut self, group: &Group) -> Result<(), FabricError> {
        let mut rebuilt = BTreeSet::new();
        for uid in &group.reshaped {
            let Some(collection) = group.catalog.get(*uid) else { continue };
            if self.reshape(collection, &group.snapshot, group.number)? {
                rebuilt.insert(*uid);
            }
        }
        // An index made from the group's snapshot already holds the group's changes.
        for change in group.changes.iter().filter(|change| !rebuilt.contains(&change.uid)) {
            if let Some(index) = self.indexes.get_mut(&change.uid) {
                index.put(change.doc, &change.after, change.was_live)?;
            }
        }
        Ok(())
    }

    /// Follows a schema change. Says whether the index was made anew from the snapshot.
    fn reshape(
        &mut self,
        collection: &Collection,
        snapshot: &Snapshot,
        group: u64,
    ) -> Result<bool, FabricError> {
        if collection.dropped.is_some() {
            self.indexes.remove(&collection.uid);
            self.sweep()?;
            return Ok(false);
        }
        if self.indexes.get_mut(&collection.uid).is_some_and(|index| index.adopt(collection)) {
            return Ok(false);
        }
        self.indexes.remove(&collection.uid);
        self.make(collection, snapshot, group)?;
        self.sweep()?;
        Ok(true)
    }

    fn publish(&mut self, catalog: Catalog, store: Snapshot, group: u64) -> Result<(), FabricError> {
        let mut collections = BTreeMap::new();
        for collection in catalog.all() {
            let index =
                self.indexes.get_mut(&collection.uid).map(|index| index.publish(group)).transpose()?;
            collections.insert(collection.uid, CollectionView { collection: collection.clone(), index });
        }
        self.shared.publish(View { group, collections, catalog, store });
        Ok(())
    }
}
