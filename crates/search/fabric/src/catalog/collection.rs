//! One collection: its generations, its partitions, its counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;
use tidegate_contract::error::{Breach, SfErrorCode};
use tidegate_contract::fingerprint::Fingerprint;
use tidegate_contract::schema::{self, INITIAL_GENERATION, Schema};
use tidegate_core::{CommitTs, Ts};
use tidegate_proto::searchfabric::v1::{
    CollectionRef, CollectionSchemaDefinition, DropCollectionRequest, PartitionDisposition,
    PutCollectionSchemaRequest, RequestMeta, SchemaFence, SchemaGeneration, SchemaScope,
};

use super::lineage::Lineage;
use super::{Uid, gone};
use crate::ingest::Partition;

/// One schema generation.
#[derive(Clone, Debug)]
pub(crate) struct Generation {
    /// What it is.
    pub(crate) generation: SchemaGeneration,
    /// The idempotency key of the request that made it.
    pub(crate) key: String,
    /// The fingerprint of that request without its caller.
    pub(crate) fingerprint: String,
    /// The compiled rules of its definition.
    pub(crate) rules: Arc<Schema>,
}

/// The end of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// The commit timestamp of the DDL.
    pub(crate) at: CommitTs,
    /// The idempotency key of the request.
    pub(crate) key: String,
    /// The fingerprint of that request without its caller.
    pub(crate) fingerprint: String,
}

/// A collection.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    /// Its number.
    pub(crate) uid: Uid,
    /// Its namespace and id.
    pub(crate) reference: CollectionRef,
    /// Generations, oldest first.
    pub(crate) generations: Vec<Arc<Generation>>,
    /// Set once it has ended.
    pub(crate) dropped: Option<Dropped>,
    /// Every partition that ever fed it, retired ones too.
    pub(crate) partitions: BTreeMap<String, Arc<Partition>>,
    /// Rows that were skipped because they broke a rule.
    pub(crate) rows_rejected: u64,
    /// How often one version came with two contents.
    pub(crate) version_conflicts: u64,
    /// Rows that came after their partition had promised that none would.
    pub(crate) rows_late: u64,
    /// What stored documents mean today.
    pub(crate) lineage: Arc<Lineage>,
}

/// What a schema change did.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    /// The generation it made.
    pub(crate) generation: SchemaGeneration,
    /// Whether it had been made before.
    pub(crate) replayed: bool,
    /// Numbers of the partitions whose documents must be deleted.
    pub(crate) purged: Vec<u32>,
}

impl Generation {
    /// A stored generation.
    pub(crate) fn new(
        generation: SchemaGeneration,
        key: String,
        fingerprint: String,
    ) -> Result<Self, Breach> {
        let definition = generation.definition.clone().unwrap_or_default();
        Ok(Self { rules: Arc::new(Schema::new(&definition)?), generation, key, fingerprint })
    }

    /// The DDL that began it.
    pub(crate) fn ddl_commit_ts(&self) -> CommitTs {
        CommitTs::new(self.generation.ddl_commit_ts)
    }

    /// Its definition.
    pub(crate) fn definition(&self) -> Option<&CollectionSchemaDefinition> {
        self.generation.definition.as_ref()
    }

    /// Its token.
    pub(crate) fn token(&self) -> &str {
        &self.generation.schema_generation_token
    }
}

impl Collection {
    /// A collection without a schema.
    pub(crate) fn new(uid: Uid, reference: CollectionRef) -> Self {
        Self {
            uid,
            reference,
            generations: Vec::new(),
            dropped: None,
            partitions: BTreeMap::new(),
            rows_rejected: 0,
            version_conflicts: 0,
            rows_late: 0,
            lineage: Arc::default(),
        }
    }

    /// The generation in force.
    pub(crate) fn current(&self) -> Option<&Arc<Generation>> {
        self.generations.last()
    }

    /// Its name today.
    pub(crate) fn name(&self) -> &str {
        self.lineage.definition.name.as_str()
    }

    /// The generation of a token, and the DDL that ended it, if one did.
    pub(crate) fn generation(&self, token: &str) -> Option<(&Arc<Generation>, Option<CommitTs>)> {
        let at = self.generations.iter().position(|generation| generation.token() == token)?;
        let ended = self.generations.get(at + 1).map(|next| next.ddl_commit_ts());
        Some((self.generations.get(at)?, ended))
    }

    /// Partitions that feed it now.
    pub(crate) fn feeding(&self) -> impl Iterator<Item = &Partition> {
        self.partitions.values().map(Arc::as_ref).filter(|partition| partition.retired.is_none())
    }

    /// Recomputes what follows from the generations.
    pub(crate) fn refresh(&mut self) {
        self.lineage = Arc::new(Lineage::new(self.generations.iter().map(|g| &g.generation)));
    }

    /// Moves to the next generation.
    pub(super) fn put(&mut self, request: &PutCollectionSchemaRequest) -> Result<Put, Breach> {
        let fingerprint = fingerprint_of(&PutCollectionSchemaRequest { meta: None, ..request.clone() });
        let key = key_of(request.meta.as_ref());
        if let Some(known) = self.generations.iter().find(|generation| generation.key == key) {
            same_request(&known.fingerprint, &fingerprint)?;
            return Ok(Put { generation: known.generation.clone(), replayed: true, purged: Vec::new() });
        }
        if let Some(dropped) = &self.dropped {
            return Err(gone(dropped.at));
        }
        let ddl = self.check_fence(request.scope.as_ref(), request.fence.as_ref())?;
        let definition = request.definition.as_ref();
        let definition = definition.ok_or_else(|| invalid("definition", "is missing"))?;
        self.check_definition(request, definition)?;
        let generation = self.next_generation(request, &fingerprint, ddl);
        let purged = self.reassign(definition, ddl);
        self.generations.push(Arc::new(Generation::new(generation.clone(), key, fingerprint)?));
        self.refresh();
        Ok(Put { generation, replayed: false, purged })
    }

    /// Ends the collection.
    pub(super) fn end(&mut self, request: &DropCollectionRequest) -> Result<(CommitTs, bool), Breach> {
        let fingerprint = fingerprint_of(&DropCollectionRequest { meta: None, ..request.clone() });
        let key = key_of(request.meta.as_ref());
        if let Some(dropped) = &self.dropped {
            if dropped.key != key {
                return Err(gone(dropped.at));
            }
            same_request(&dropped.fingerprint, &fingerprint)?;
            return Ok((dropped.at, true));
        }
        let at = self.check_fence(request.scope.as_ref(), request.fence.as_ref())?;
        self.dropped = Some(Dropped { at, key, fingerprint });
        Ok((at, false))
    }

    /// The caller must have seen the state it changes. Gives the DDL's commit timestamp.
    fn check_fence(
        &self,
        scope: Option<&SchemaScope>,
        fence: Option<&SchemaFence>,
    ) -> Result<CommitTs, Breach> {
        let mismatch =
            |path: &str, detail: String| Err(Breach::new(SfErrorCode::SfSchemaFenceMismatch, path, detail));
        let scope = scope.ok_or_else(|| invalid("scope", "is missing"))?;
        let fence = fence.ok_or_else(|| invalid("fence", "is missing"))?;
        let (version, token, before) = self.current().map_or((0, INITIAL_GENERATION, None), |generation| {
            let version = generation.generation.schema_version;
            (version, generation.token(), Some(generation.ddl_commit_ts()))
        });
        let ddl = CommitTs::new(scope.ddl_commit_ts);
        if fence.expected_prev_schema_version != version {
            let detail = format!("is {}, the catalogue is at {version}", fence.expected_prev_schema_version);
            return mismatch("fence.expected_prev_schema_version", detail);
        }
        if fence.schema_generation_token != token {
            let detail = format!("is not the one in force, which is {token}");
            return mismatch("fence.schema_generation_token", detail);
        }
        match before {
            Some(before) if ddl <= before => {
                mismatch("scope.ddl_commit_ts", format!("is {ddl}, not above the last DDL {before}"))
            }
            _ => Ok(ddl),
        }
    }

    fn check_definition(
        &self,
        request: &PutCollectionSchemaRequest,
        definition: &CollectionSchemaDefinition,
    ) -> Result<(), Breach> {
        let Some(before) = self.current().and_then(|generation| generation.definition()) else {
            return Ok(());
        };
        schema::check_successor(before, definition).map_err(|breach| breach.within("definition"))?;
        let expected = schema::classify(Some(before), definition);
        if request.update_policy() != expected {
            let given = request.update_policy().as_str_name();
            let detail = format!("is {given}, the definitions differ by {}", expected.as_str_name());
            return Err(Breach::new(SfErrorCode::SfUpdatePolicyMismatch, "update_policy", detail));
        }
        Ok(())
    }

    /// The token names the collection's id, the version and the content, so that no two generations of any
    /// collection share one, and the same request made again on an empty catalogue gives the same token.
    fn next_generation(
        &self,
        request: &PutCollectionSchemaRequest,
        fingerprint: &str,
        ddl: CommitTs,
    ) -> SchemaGeneration {
        let short: String = fingerprint.chars().take(TOKEN_DIGITS).collect();
        SchemaGeneration {
            schema_version: request.schema_version,
            schema_generation_token: format!("g{}-{short}", request.schema_version),
            ddl_commit_ts: ddl.get(),
            update_policy: request.update_policy,
            definition: request.definition.clone(),
        }
    }

    /// Brings partitions in and takes partitions out, as the definition says. Gives the numbers of those
    /// whose documents must be deleted.
    fn reassign(&mut self, definition: &CollectionSchemaDefinition, ddl: CommitTs) -> Vec<u32> {
        for source in &definition.source_partitions {
            let number = u32::try_from(self.partitions.len()).unwrap_or(u32::MAX);
            let start = Ts::new(source.start_ts).as_start();
            let name = source.source_partition.clone();
            let fresh = || Arc::new(Partition::new(name.clone(), number, start, ddl));
            let partition = Arc::make_mut(self.partitions.entry(name.clone()).or_insert_with(fresh));
            if partition.retired.take().is_some() {
                (partition.start, partition.since) = (start, ddl);
            }
        }
        let mut purged = Vec::new();
        for retired in &definition.retired_partitions {
            let Some(partition) = self.partitions.get_mut(&retired.source_partition) else { continue };
            Arc::make_mut(partition).retired = Some((ddl, retired.disposition()));
            if retired.disposition() == PartitionDisposition::DeleteDocuments {
                purged.push(partition.number);
            }
        }
        purged
    }
}

/// Hexadecimal digits of the content's fingerprint in a token: 64 bits tell generations apart.
const TOKEN_DIGITS: usize = 16;

/// The fingerprint of a request.
pub(crate) fn fingerprint_of(request: &impl Message) -> String {
    Fingerprint::of(&request.encode_to_vec()).to_string()
}

fn key_of(meta: Option<&RequestMeta>) -> String {
    meta.map_or_else(String::new, |meta| meta.idempotency_key.clone())
}

fn same_request(known: &str, given: &str) -> Result<(), Breach> {
    if known == given {
        return Ok(());
    }
    let detail = "was used before for another request";
    Err(Breach::new(SfErrorCode::SfIdempotencyConflict, "meta.idempotency_key", detail))
}

fn invalid(path: &str, detail: &'static str) -> Breach {
    Breach::new(SfErrorCode::SfInvalidArgument, path, detail)
}
