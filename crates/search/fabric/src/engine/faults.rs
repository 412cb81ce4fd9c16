//! A disk that fails: every operation of the store is made to fail once, or to be the last before a power
//! loss. What was acknowledged must be there afterwards, and nothing may be acknowledged after a failure.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use redb::StorageBackend;
use tidegate_proto::searchfabric::v1::*;
use tokio::sync::oneshot;

use super::{Command, Engine};
use crate::catalog::{Catalog, Uid};
use crate::error::FabricError;
use crate::grpc::prepare;
use crate::ingest::Refusal;
use crate::options::FabricOptions;
use crate::store::Store;

/// What is lost of the writes that were not synced when the power went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// All of them.
    All,
    /// None: the process died, not the machine.
    Nothing,
    /// All but the first half.
    Tail,
    /// Every other one.
    Scattered,
    /// All but the first half of the first one.
    Torn,
}

/// How the disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The operation fails, and everything after it works again.
    Error,
    /// Nothing works any more from the operation on.
    Crash,
}

#[derive(Debug, Default)]
struct State {
    synced: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
    operations: u64,
    fault: Option<(u64, Fault)>,
    failed: bool,
}

/// A disk in memory that knows which writes were synced.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<State>>);

impl State {
    /// Counts an operation that changes the disk, and fails where it is told to.
    fn operate(&mut self) -> Result<(), io::Error> {
        self.operations += 1;
        match self.fault {
            Some((at, Fault::Error)) if at == self.operations => {
                self.failed = true;
                Err(io::Error::other("injected"))
            }
            Some((at, Fault::Crash)) if at <= self.operations => {
                self.failed = true;
                Err(io::Error::other("no power"))
            }
            _ => Ok(()),
        }
    }
}

fn resize(bytes: &mut Vec<u8>, len: usize) {
    bytes.resize(len, 0);
}

fn put(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    let end = at + data.len();
    if bytes.len() < end {
        resize(bytes, end);
    }
    bytes[at..end].copy_from_slice(data);
}

impl Disk {
    /// A disk with an empty store. Creating one is not interrupted here: it happens beside the final name.
    fn new() -> Self {
        let disk = Self::default();
        drop(Store::on(disk.clone()).expect("a working disk"));
        disk.0.lock().operations = 0;
        disk
    }

    /// A working disk with what the broken one holds after a power loss.
    fn after(&self, loss: Loss) -> Self {
        let state = self.0.lock();
        let mut bytes = state.synced.clone();
        let len = state.current.len().max(bytes.len());
        resize(&mut bytes, len);
        let half = state.unsynced.len() / 2;
        for (i, (at, data)) in state.unsynced.iter().enumerate() {
            match loss {
                Loss::All => {}
                Loss::Nothing => put(&mut bytes, *at, data),
                Loss::Tail if i < half => put(&mut bytes, *at, data),
                Loss::Scattered if i % 2 == 0 => put(&mut bytes, *at, data),
                Loss::Torn if i == 0 => put(&mut bytes, *at, &data[..data.len() / 2]),
                Loss::Tail | Loss::Scattered | Loss::Torn => {}
            }
        }
        let fresh = State { synced: bytes.clone(), current: bytes, ..State::default() };
        Self(Arc::new(Mutex::new(fresh)))
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.lock().current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let state = self.0.lock();
        let at = usize::try_from(offset).expect("a small disk");
        let bytes = state.current.get(at..at + out.len());
        out.copy_from_slice(bytes.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let mut state = self.0.lock();
        state.operate()?;
        resize(&mut state.current, usize::try_from(len).expect("a small disk"));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut state = self.0.lock();
        state.operate()?;
        state.synced = state.current.clone();
        state.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut state = self.0.lock();
        state.operate()?;
        let at = usize::try_from(offset).expect("a small disk");
        put(&mut state.current, at, data);
        state.unsynced.push((at, data.to_vec()));
        Ok(())
    }
}

/// Batches of the work that is interrupted.
const BATCHES: u64 = 6;

fn definition() -> CollectionSchemaDefinition {
    CollectionSchemaDefinition {
        name: "a.b".to_owned(),
        truth_mode: CollectionTruthMode::External.into(),
        doc_id_mapping: Some(DocIdMapping {
            source_field: "id".to_owned(),
            r#type: ScalarFieldType::Uint64.into(),
        }),
        fields: vec![FieldSchema {
            name: "id".to_owned(),
            field_id: 1,
            r#type: Some(field_schema::Type::Scalar(ScalarFieldType::Uint64.into())),
            ..FieldSchema::default()
        }],
        undeclared_field_policy: UndeclaredFieldPolicy::Reject.into(),
        source_partitions: vec![SourcePartition { source_partition: "table:7".to_owned(), start_ts: 1 }],
        ..CollectionSchemaDefinition::default()
    }
}

fn reference() -> CollectionRef {
    CollectionRef { namespace: "default".to_owned(), collection_id: "t7".to_owned() }
}

fn put_request() -> PutCollectionSchemaRequest {
    PutCollectionSchemaRequest {
        meta: Some(RequestMeta { idempotency_key: "ddl".to_owned(), ..RequestMeta::default() }),
        scope: Some(SchemaScope { collection: Some(reference()), ddl_commit_ts: 5 }),
        schema_version: 1,
        fence: Some(SchemaFence {
            expected_prev_schema_version: 0,
            schema_generation_token: tidegate_contract::INITIAL_GENERATION.to_owned(),
            enforce_monotonic_apply: true,
        }),
        definition: Some(definition()),
        update_policy: SchemaUpdatePolicy::InitialCreation.into(),
    }
}

/// Batch `n`: writes document `n`, deletes document `n - 1`, and promises up to there.
fn batch(n: u64, token: &str) -> MutationBatch {
    let id = |doc| Some(DocumentId { id_value: Some(document_id::IdValue::U64(doc)) });
    let value = AtomicValue { value: Some(atomic_value::Value::Uint64Value(n)) };
    let field = FieldData { value: Some(field_data::Value::AtomicValue(value)) };
    let at = n * 10;
    let write = RowMutation {
        kind: RowMutationKind::Upsert.into(),
        doc_id: id(n),
        commit_ts: at,
        schema_version: Some(1),
        fields: [("id".to_owned(), field)].into(),
    };
    let erase = RowMutation {
        kind: RowMutationKind::Delete.into(),
        doc_id: id(n - 1),
        commit_ts: at + 1,
        ..RowMutation::default()
    };
    let mark = ProgressMark { resolved_ts: at + 2, watermarks: Vec::new() };
    let entries = [
        mutation_entry::Entry::RowMutation(write),
        mutation_entry::Entry::RowMutation(erase),
        mutation_entry::Entry::ProgressMark(mark),
    ];
    let mut batch = MutationBatch {
        meta: Some(RequestMeta {
            client_id: "test".to_owned(),
            client_kind: ClientKind::TidbCdcAdapter.into(),
            idempotency_key: format!("k{n}"),
        }),
        collection: Some(reference()),
        stream_identity: Some(StreamIdentity {
            source_partition: "table:7".to_owned(),
            source_epoch: 1,
            source_seq: n * 3 - 2,
        }),
        batch_id: format!("b{n}"),
        schema_generation_token: token.to_owned(),
        entries: entries.map(|entry| MutationEntry { entry: Some(entry) }).into(),
        ..MutationBatch::default()
    };
    batch.batch_fingerprint = tidegate_contract::fingerprint::batch_fingerprint(&batch).to_string();
    batch
}

fn open(disk: &Disk) -> Result<Engine, FabricError> {
    Engine::start(&FabricOptions::default(), Store::on(disk.clone())?, None)
}

fn ask<T>(engine: &Engine, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    engine.commands.blocking_send(command(reply)).ok()?;
    answer.blocking_recv().ok()
}

fn create(engine: &Engine) -> Option<String> {
    let answer = ask(engine, |reply| Command::Put { request: Box::new(put_request()), reply })?;
    answer.ok().map(|(generation, _)| generation.schema_generation_token)
}

fn send(engine: &Engine, n: u64, token: &str) -> Option<Result<MutationSuccess, Refusal>> {
    let catalog: Catalog = engine.shared.catalog();
    let (uid, batch) = prepare(batch(n, token), &catalog).expect("a good batch");
    let permit = engine.shared.in_flight.clone().try_acquire_owned().expect("room");
    ask(engine, |reply| Command::Batch { uid, batch, reply, permit })
}

/// Works until something fails. Gives how many batches were acknowledged; `None` if not even the collection
/// was.
fn work(engine: &Engine) -> Option<u64> {
    let token = create(engine)?;
    let mut acked = 0;
    for n in 1..=BATCHES {
        match send(engine, n, &token) {
            Some(Ok(_)) => {
                assert_eq!(acked, n - 1, "an acknowledgement after a failure");
                acked = n;
            }
            Some(Err(refusal)) => {
                assert_eq!(refusal.breach.code(), SfErrorCode::SfStoragePoisoned);
            }
            None => {}
        }
    }
    Some(acked)
}

/// What was acknowledged is there, and work goes on from where the store says.
fn verify(disk: &Disk, acked: Option<u64>, what: &str) {
    let engine = open(disk).unwrap_or_else(|error| panic!("{what}: cannot be reopened: {error:?}"));
    let Some(acked) = acked else {
        assert!(create(&engine).is_some(), "{what}");
        engine.stop();
        return;
    };
    let view = engine.shared.view().expect("a view");
    let collection = view.catalog.get(Uid(1)).expect("the collection");
    let held = collection.partitions["table:7"].seq / 3;
    assert!(held == acked || held == acked + 1, "{what}: {acked} acknowledged, {held} held");
    for n in 1..=held {
        let live = view.store.document(Uid(1), n).expect("readable").is_some_and(|record| record.is_live());
        assert_eq!(live, n == held, "{what}: document {n} of {held}");
    }
    let index = view.collections[&Uid(1)].index.as_ref().expect("an index");
    assert_eq!(index.searcher.num_docs(), u64::from(held > 0), "{what}");
    let token = collection.current().expect("a schema").token().to_owned();
    if acked > 0 {
        let again = send(&engine, acked, &token).and_then(Result::ok).expect("the receipt");
        assert!(again.replayed, "{what}");
    }
    if held < BATCHES {
        assert!(matches!(send(&engine, held + 1, &token), Some(Ok(_))), "{what}: work does not go on");
    }
    engine.stop();
}

/// Operations that the whole work needs, counted on a disk that works.
fn operations() -> u64 {
    let disk = Disk::new();
    let engine = open(&disk).expect("a working disk");
    assert_eq!(work(&engine), Some(BATCHES));
    engine.stop();
    drop(engine);
    disk.0.lock().operations
}

fn interrupted(at: u64, fault: Fault) -> (Disk, Option<u64>) {
    let disk = Disk::new();
    disk.0.lock().fault = Some((at, fault));
    let Ok(engine) = open(&disk) else { return (disk, None) };
    let acked = work(&engine);
    let failed_early = disk.0.lock().failed;
    if failed_early && acked != Some(BATCHES) {
        assert!(engine.shared.poisoned().is_some(), "a failure at {at} went unnoticed");
        let refused = engine.shared.counts.commits.load(Ordering::Relaxed);
        assert!(refused <= BATCHES + 1);
    }
    engine.stop();
    (disk, acked)
}

#[test]
fn after_a_power_loss_at_any_operation_everything_acknowledged_is_there() {
    let losses = [Loss::All, Loss::Nothing, Loss::Tail, Loss::Scattered, Loss::Torn];
    for at in 1..=operations() {
        let (disk, acked) = interrupted(at, Fault::Crash);
        for loss in losses {
            verify(&disk.after(loss), acked, &format!("power lost at {at}, {loss:?}"));
        }
    }
}

#[test]
fn after_any_single_error_nothing_more_is_acknowledged_and_a_restart_recovers() {
    for at in 1..=operations() {
        let (disk, acked) = interrupted(at, Fault::Error);
        verify(&disk.after(Loss::Nothing), acked, &format!("error at {at}"));
    }
}
