//! Collections and their schema generations, free of I/O.
//!
//! *Invariant:* a collection's generations form one line, each made from the one before it and brought by a
//! later DDL; a dropped collection's id never comes back.

mod collection;
mod lineage;

pub(crate) use collection::{Collection, Dropped, Generation, Put};
pub(crate) use lineage::{Lineage, content_of};

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_contract::error::{Breach, SfErrorCode};
use tidegate_core::CommitTs;
use tidegate_proto::searchfabric::v1::{CollectionRef, DropCollectionRequest, PutCollectionSchemaRequest};

/// A collection's number inside this fabric: short, because every document's key begins with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Uid(pub(crate) u32);

/// All collections. Cheap to clone: what readers see is a clone of what the writer has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    collections: BTreeMap<Uid, Arc<Collection>>,
    by_ref: BTreeMap<(String, String), Uid>,
}

/// How a caller names a collection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selector<'a> {
    /// By its current name.
    Name(&'a str),
    /// By its id.
    Id(&'a str),
}

impl Catalog {
    /// A catalogue of stored collections.
    pub(crate) fn restore(collections: impl IntoIterator<Item = Collection>) -> Self {
        let mut catalog = Self::default();
        for collection in collections {
            catalog.insert(collection);
        }
        catalog
    }

    fn insert(&mut self, collection: Collection) {
        let reference = &collection.reference;
        let key = (reference.namespace.clone(), reference.collection_id.clone());
        self.by_ref.insert(key, collection.uid);
        self.collections.insert(collection.uid, Arc::new(collection));
    }

    /// All collections, dropped ones too, in order of creation.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.collections.values()
    }

    /// A collection by its number.
    pub(crate) fn get(&self, uid: Uid) -> Option<&Arc<Collection>> {
        self.collections.get(&uid)
    }

    /// A collection to change; what readers hold stays as it was.
    pub(crate) fn get_mut(&mut self, uid: Uid) -> Option<&mut Collection> {
        self.collections.get_mut(&uid).map(Arc::make_mut)
    }

    /// A collection by reference, dropped or not.
    pub(crate) fn find(&self, reference: &CollectionRef) -> Option<&Arc<Collection>> {
        let key = (reference.namespace.clone(), reference.collection_id.clone());
        self.get(*self.by_ref.get(&key)?)
    }

    /// A collection by what a reader calls it. Of several active ones with one name, the name belongs to the
    /// one that got it by the later DDL.
    pub(crate) fn select(&self, namespace: &str, selector: Selector<'_>) -> Option<&Arc<Collection>> {
        let here = self.all().filter(|c| c.reference.namespace == namespace);
        match selector {
            Selector::Id(id) => here.filter(|c| c.reference.collection_id == id).last(),
            Selector::Name(name) => here
                .filter(|c| c.name() == name)
                .max_by_key(|c| (c.dropped.is_none(), c.current().map(|g| g.ddl_commit_ts()))),
        }
    }

    /// The collection a batch or a schema change is for, as long as it is alive.
    pub(crate) fn active(&self, reference: &CollectionRef) -> Result<&Arc<Collection>, Breach> {
        let missing = || Breach::new(SfErrorCode::SfCollectionNotFound, "collection", "does not exist");
        let collection = self.find(reference).ok_or_else(missing)?;
        match &collection.dropped {
            None => Ok(collection),
            Some(dropped) => Err(gone(dropped.at)),
        }
    }

    /// Applies a schema change that is well formed ([`tidegate_contract::validate::check_put_schema`]).
    pub(crate) fn put(&mut self, request: &PutCollectionSchemaRequest) -> Result<(Uid, Put), Breach> {
        let reference = reference_of(request.scope.as_ref())?;
        let mut collection = match self.find(&reference) {
            Some(known) => known.as_ref().clone(),
            None => Collection::new(self.next_uid(), reference),
        };
        let put = collection.put(request)?;
        let uid = collection.uid;
        self.insert(collection);
        Ok((uid, put))
    }

    /// Ends a collection. Gives its number, when it ended, and whether this is a repetition.
    pub(crate) fn drop_collection(
        &mut self,
        request: &DropCollectionRequest,
    ) -> Result<(Uid, CommitTs, bool), Breach> {
        let reference = reference_of(request.scope.as_ref())?;
        let missing = || Breach::new(SfErrorCode::SfCollectionNotFound, "scope.collection", "does not exist");
        let mut collection = self.find(&reference).ok_or_else(missing)?.as_ref().clone();
        let (at, replayed) = collection.end(request)?;
        let uid = collection.uid;
        self.insert(collection);
        Ok((uid, at, replayed))
    }

    fn next_uid(&self) -> Uid {
        Uid(self.collections.keys().next_back().map_or(1, |last| last.0.saturating_add(1)))
    }
}

fn reference_of(
    scope: Option<&tidegate_proto::searchfabric::v1::SchemaScope>,
) -> Result<CollectionRef, Breach> {
    let missing = || Breach::new(SfErrorCode::SfInvalidArgument, "scope.collection", "is missing");
    scope.and_then(|scope| scope.collection.clone()).ok_or_else(missing)
}

fn gone(at: CommitTs) -> Breach {
    let detail = format!("was dropped at {at}; its id is not used again");
    Breach::new(SfErrorCode::SfCollectionDropped, "collection", detail)
}
