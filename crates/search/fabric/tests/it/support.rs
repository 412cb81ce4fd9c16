//! A fabric on a loopback port, a producer of batches, and the demo documents.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tidegate_contract::fingerprint::batch_fingerprint;
use tidegate_fabric::{Fabric, FabricOptions};
use tidegate_proto::searchfabric::v1::catalog_control_service_client::CatalogControlServiceClient;
use tidegate_proto::searchfabric::v1::ingest_gateway_service_client::IngestGatewayServiceClient;
use tidegate_proto::searchfabric::v1::query_service_client::QueryServiceClient;
use tidegate_proto::searchfabric::v1::*;
use tonic::transport::Channel;

pub(crate) const NAMESPACE: &str = "default";

/// A running fabric with a client for each service.
pub(crate) struct World {
    pub(crate) fabric: Fabric,
    pub(crate) ingest: IngestGatewayServiceClient<Channel>,
    pub(crate) catalog: CatalogControlServiceClient<Channel>,
    pub(crate) query: QueryServiceClient<Channel>,
}

impl World {
    /// A fabric in memory.
    pub(crate) async fn new() -> Self {
        Self::open(None).await
    }

    /// A fabric in a directory, or in memory.
    pub(crate) async fn open(data_dir: Option<PathBuf>) -> Self {
        let options = FabricOptions { data_dir, ..FabricOptions::default() };
        let fabric = tokio::task::spawn_blocking(move || Fabric::open(options)).await.unwrap().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = fabric.clone();
        tokio::spawn(async move { serving.serve(listener).await.unwrap() });
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        Self {
            fabric,
            ingest: IngestGatewayServiceClient::new(channel.clone()),
            catalog: CatalogControlServiceClient::new(channel.clone()),
            query: QueryServiceClient::new(channel),
        }
    }

    /// Stops it and waits until its files are closed.
    pub(crate) async fn close(self) {
        self.fabric.shutdown().await;
        drop(self);
    }

    /// Sends batches on one stream and returns their answers.
    pub(crate) async fn send(&mut self, batches: Vec<MutationBatch>) -> Vec<MutationAck> {
        let count = batches.len();
        let stream = self.ingest.stream_mutations(tokio_stream::iter(batches)).await.unwrap();
        let mut stream = stream.into_inner();
        let mut acks = Vec::new();
        while let Some(ack) = stream.message().await.unwrap() {
            acks.push(ack);
        }
        assert_eq!(acks.len(), count, "every batch has one answer");
        acks
    }

    /// Sends one batch.
    pub(crate) async fn send_one(
        &mut self,
        batch: MutationBatch,
    ) -> Result<MutationSuccess, MutationFailure> {
        outcome(self.send(vec![batch]).await.remove(0))
    }

    /// Applies a schema change.
    pub(crate) async fn put(
        &mut self,
        request: PutCollectionSchemaRequest,
    ) -> Result<SchemaGeneration, tonic::Status> {
        let response = self.catalog.put_collection_schema(request).await?;
        Ok(response.into_inner().generation.unwrap())
    }

    /// Creates a collection and a producer for its first partition.
    pub(crate) async fn create(&mut self, id: &str, definition: CollectionSchemaDefinition) -> Producer {
        let partition = definition.source_partitions[0].source_partition.clone();
        let generation = self.put(put(id, 10, None, definition)).await.unwrap();
        Producer::new(id, &partition, &generation)
    }
}

pub(crate) fn outcome(ack: MutationAck) -> Result<MutationSuccess, MutationFailure> {
    match ack.outcome.unwrap() {
        mutation_ack::Outcome::Success(success) => Ok(success),
        mutation_ack::Outcome::Failure(failure) => Err(failure),
    }
}

pub(crate) fn reference(id: &str) -> CollectionRef {
    CollectionRef { namespace: NAMESPACE.to_owned(), collection_id: id.to_owned() }
}

pub(crate) fn named(name: &str) -> Option<CollectionSelector> {
    let collection = Some(collection_selector::Collection::Name(name.to_owned()));
    Some(CollectionSelector { namespace: String::new(), collection })
}

/// A request that follows `previous`.
pub(crate) fn put(
    id: &str,
    ddl_commit_ts: u64,
    previous: Option<&SchemaGeneration>,
    definition: CollectionSchemaDefinition,
) -> PutCollectionSchemaRequest {
    let before = previous.and_then(|generation| generation.definition.as_ref());
    let policy = tidegate_contract::schema::classify(before, &definition);
    let version = previous.map_or(0, |generation| generation.schema_version);
    let token = previous.map_or(tidegate_contract::INITIAL_GENERATION, |g| &g.schema_generation_token);
    PutCollectionSchemaRequest {
        meta: Some(meta(ClientKind::TidbDdlAdapter, &format!("ddl-{id}-{ddl_commit_ts}"))),
        scope: Some(SchemaScope { collection: Some(reference(id)), ddl_commit_ts }),
        schema_version: version + 1,
        fence: Some(SchemaFence {
            expected_prev_schema_version: version,
            schema_generation_token: token.to_owned(),
            enforce_monotonic_apply: true,
        }),
        definition: Some(definition),
        update_policy: policy.into(),
    }
}

pub(crate) fn meta(kind: ClientKind, key: &str) -> RequestMeta {
    RequestMeta { client_id: "test".to_owned(), client_kind: kind.into(), idempotency_key: key.to_owned() }
}

/// The writer of one partition.
#[derive(Clone)]
pub(crate) struct Producer {
    pub(crate) id: String,
    pub(crate) partition: String,
    pub(crate) epoch: u64,
    pub(crate) next_seq: u64,
    pub(crate) token: String,
    pub(crate) schema_version: u32,
}

impl Producer {
    pub(crate) fn new(id: &str, partition: &str, generation: &SchemaGeneration) -> Self {
        Self {
            id: id.to_owned(),
            partition: partition.to_owned(),
            epoch: 1,
            next_seq: 1,
            token: generation.schema_generation_token.clone(),
            schema_version: generation.schema_version,
        }
    }

    /// The next batch of the stream.
    pub(crate) fn batch(&mut self, entries: Vec<MutationEntry>) -> MutationBatch {
        let seq = self.next_seq;
        self.next_seq += entries.len() as u64;
        let key = format!("{}-{}-{seq}", self.partition, self.epoch);
        seal(MutationBatch {
            meta: Some(meta(ClientKind::TidbCdcAdapter, &key)),
            collection: Some(reference(&self.id)),
            stream_identity: Some(StreamIdentity {
                source_partition: self.partition.clone(),
                source_epoch: self.epoch,
                source_seq: seq,
            }),
            batch_id: key,
            schema_generation_token: self.token.clone(),
            entries,
            ..MutationBatch::default()
        })
    }

    pub(crate) fn upsert(&self, doc: u64, commit_ts: u64, fields: Fields) -> MutationEntry {
        self.row(RowMutationKind::Upsert, doc, commit_ts, fields)
    }

    pub(crate) fn patch(&self, doc: u64, commit_ts: u64, fields: Fields) -> MutationEntry {
        self.row(RowMutationKind::Patch, doc, commit_ts, fields)
    }

    pub(crate) fn row(
        &self,
        kind: RowMutationKind,
        doc: u64,
        commit_ts: u64,
        fields: Fields,
    ) -> MutationEntry {
        let data_bearing = kind != RowMutationKind::Delete;
        entry(mutation_entry::Entry::RowMutation(RowMutation {
            kind: kind.into(),
            doc_id: Some(DocumentId { id_value: Some(document_id::IdValue::U64(doc)) }),
            commit_ts,
            schema_version: data_bearing.then_some(self.schema_version),
            fields,
        }))
    }
}

pub(crate) type Fields = BTreeMap<String, FieldData>;

pub(crate) fn seal(mut batch: MutationBatch) -> MutationBatch {
    batch.batch_fingerprint = batch_fingerprint(&batch).to_string();
    batch
}

pub(crate) fn entry(entry: mutation_entry::Entry) -> MutationEntry {
    MutationEntry { entry: Some(entry) }
}

pub(crate) fn delete(doc: u64, commit_ts: u64) -> MutationEntry {
    entry(mutation_entry::Entry::RowMutation(RowMutation {
        kind: RowMutationKind::Delete.into(),
        doc_id: Some(DocumentId { id_value: Some(document_id::IdValue::U64(doc)) }),
        commit_ts,
        ..RowMutation::default()
    }))
}

pub(crate) fn progress(resolved_ts: u64) -> MutationEntry {
    entry(mutation_entry::Entry::ProgressMark(ProgressMark { resolved_ts, watermarks: Vec::new() }))
}

pub(crate) fn barrier(barrier_ts: u64) -> MutationEntry {
    entry(mutation_entry::Entry::BarrierMark(BarrierMark {
        barrier_ts,
        fence_id: format!("fence-{barrier_ts}"),
    }))
}

pub(crate) fn atomic(value: atomic_value::Value) -> FieldData {
    FieldData { value: Some(field_data::Value::AtomicValue(AtomicValue { value: Some(value) })) }
}

pub(crate) fn text(text: &str) -> FieldData {
    atomic(atomic_value::Value::StringValue(text.to_owned()))
}

pub(crate) fn unsigned(n: u64) -> FieldData {
    atomic(atomic_value::Value::Uint64Value(n))
}

pub(crate) fn null() -> FieldData {
    atomic(atomic_value::Value::NullValue(NullValue::Null.into()))
}

pub(crate) fn scalar(field_id: i64, name: &str, scalar: ScalarFieldType) -> FieldSchema {
    FieldSchema {
        name: name.to_owned(),
        field_id,
        r#type: Some(field_schema::Type::Scalar(scalar.into())),
        nullable: name != "id",
        ..FieldSchema::default()
    }
}

pub(crate) fn searchable(field: FieldSchema, keyword: bool) -> FieldSchema {
    FieldSchema { text: Some(TextAnalysis { keyword, ..TextAnalysis::default() }), ..field }
}

pub(crate) fn definition(
    name: &str,
    fields: Vec<FieldSchema>,
    partitions: &[(&str, u64)],
) -> CollectionSchemaDefinition {
    let source = |(name, start_ts): &(&str, u64)| SourcePartition {
        source_partition: (*name).to_owned(),
        start_ts: *start_ts,
    };
    CollectionSchemaDefinition {
        name: name.to_owned(),
        truth_mode: CollectionTruthMode::External.into(),
        doc_id_mapping: Some(DocIdMapping {
            source_field: "id".to_owned(),
            r#type: ScalarFieldType::Uint64.into(),
        }),
        fields,
        undeclared_field_policy: UndeclaredFieldPolicy::Reject.into(),
        source_partitions: partitions.iter().map(source).collect(),
        ..CollectionSchemaDefinition::default()
    }
}

/// `id` and a searchable `title`, fed by the given partitions from 1 on.
pub(crate) fn small(partitions: &[&str]) -> CollectionSchemaDefinition {
    let fields = vec![
        scalar(1, "id", ScalarFieldType::Uint64),
        searchable(scalar(2, "title", ScalarFieldType::String), false),
    ];
    let partitions: Vec<_> = partitions.iter().map(|name| (*name, 1)).collect();
    definition("shop.item", fields, &partitions)
}

/// A document of [`small`].
pub(crate) fn item(id: u64, title: &str) -> Fields {
    Fields::from([("id".to_owned(), unsigned(id)), ("title".to_owned(), text(title))])
}

impl World {
    /// The titles of [`small`] by id, as a scan gives them.
    pub(crate) async fn items(&mut self) -> BTreeMap<u64, String> {
        let request = ScanRequest { collection: named("shop.item"), ..ScanRequest::default() };
        let mut stream = self.query.scan(request).await.unwrap().into_inner();
        let mut items = BTreeMap::new();
        while let Some(part) = stream.message().await.unwrap() {
            for document in part.documents {
                items.insert(document.doc_id, string_of(&document.fields["title"]));
            }
        }
        items
    }

    /// The freshness of a collection.
    pub(crate) async fn freshness(&mut self, name: &str) -> Freshness {
        let request = GetFreshnessRequest { collection: named(name), consistency: None };
        self.query.get_freshness(request).await.unwrap().into_inner().freshness.unwrap()
    }
}

pub(crate) fn string_of(field: &FieldData) -> String {
    match &field.value {
        Some(field_data::Value::AtomicValue(AtomicValue {
            value: Some(atomic_value::Value::StringValue(text)),
        })) => text.clone(),
        other => panic!("no text: {other:?}"),
    }
}

/// The error in a status.
pub(crate) fn code(status: &tonic::Status) -> (SfErrorCode, String) {
    let breach =
        tidegate_contract::error::from_status(status).unwrap_or_else(|| panic!("no breach: {status:?}"));
    (breach.code(), breach.path().to_owned())
}
