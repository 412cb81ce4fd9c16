//! Storage that fails: power that goes at any write or sync, calls that fail once, bits that rot.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use tidegate_codec::{
    event::DdlEvent,
    key::DDL_JOB_TABLE,
    meta_key::{MetaEntry, classify},
};
use tidegate_core::{Diagnostic, ErrorClass, Ts};
use tidegate_schema::{SchemaError, SchemaOptions, SchemaStore};

use crate::replay::{Recording, all_events};

/// What became of the writes since the last sync when the power went.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// None of them reached the disk.
    All,
    /// The first half of them did.
    Later,
    /// Every other one did.
    Some,
    /// All but the last, which reached it half.
    Torn,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// From this call on nothing works any more.
    PowerAt(usize),
    /// This call fails, later ones work.
    ErrorAt(usize),
    /// None.
    Never,
}

#[derive(Debug)]
struct Image {
    /// What survives a loss of power.
    durable: Vec<u8>,
    /// What reads see.
    current: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
    /// Writes, syncs and changes of length so far.
    calls: usize,
    fault: Fault,
}

/// A disk in memory.
#[derive(Clone, Debug)]
struct FaultyDisk(Arc<Mutex<Image>>);

impl FaultyDisk {
    fn new(content: Vec<u8>, fault: Fault) -> Self {
        let image =
            Image { durable: content.clone(), current: content, unsynced: Vec::new(), calls: 0, fault };
        Self(Arc::new(Mutex::new(image)))
    }

    fn image(&self) -> MutexGuard<'_, Image> {
        self.0.lock().unwrap()
    }

    fn calls(&self) -> usize {
        self.image().calls
    }

    /// The disk's content as reads see it.
    fn content(&self) -> Vec<u8> {
        self.image().current.clone()
    }

    /// The disk's content after the power went.
    fn after(&self, loss: Loss) -> Vec<u8> {
        let image = self.image();
        let mut content = image.durable.clone();
        let count = image.unsynced.len();
        for (nth, (offset, data)) in image.unsynced.iter().enumerate() {
            let kept = match loss {
                Loss::All => 0,
                Loss::Later if nth < count / 2 => data.len(),
                Loss::Some if nth % 2 == 0 => data.len(),
                Loss::Torn if nth + 1 == count => data.len() / 2,
                Loss::Torn => data.len(),
                Loss::Later | Loss::Some => 0,
            };
            let end = offset + kept;
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*offset..end].copy_from_slice(&data[..kept]);
        }
        content
    }
}

impl Image {
    fn call(&mut self) -> io::Result<()> {
        let nth = self.calls;
        self.calls += 1;
        match self.fault {
            Fault::PowerAt(at) if nth >= at => Err(io::Error::other("no power")),
            Fault::ErrorAt(at) if nth == at => Err(io::Error::other("the disk said no")),
            _ => Ok(()),
        }
    }
}

impl redb::StorageBackend for FaultyDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.image().current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let image = self.image();
        let start = usize::try_from(offset).unwrap();
        let found = image.current.get(start..start + out.len());
        out.copy_from_slice(found.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut image = self.image();
        image.call()?;
        let len = usize::try_from(len).unwrap();
        image.current.resize(len, 0);
        // A file's length is metadata, which may be on disk before the data: the harder case.
        image.durable.resize(len, 0);
        image.unsynced.retain(|(offset, data)| offset + data.len() <= len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut image = self.image();
        image.call()?;
        let Image { durable, unsynced, .. } = &mut *image;
        for (offset, data) in unsynced.drain(..) {
            durable[offset..offset + data.len()].copy_from_slice(&data);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut image = self.image();
        image.call()?;
        let start = usize::try_from(offset).unwrap();
        image.current[start..start + data.len()].copy_from_slice(data);
        image.unsynced.push((start, data.to_vec()));
        Ok(())
    }
}

/// A recording fed in steps of one finished job.
struct Steps {
    recording: Recording,
    metadata: Vec<(Bytes, Bytes)>,
    /// A new store's file. (How it is made needs a directory; see the test for that.)
    new_file: Vec<u8>,
    moments: Vec<Ts>,
    /// The events after the oldest timestamp that garbage collection leaves.
    events: Vec<Arc<DdlEvent>>,
}

/// When garbage is collected, and up to where, counted in jobs.
const COLLECTED_AFTER: usize = 9;
const COLLECTED_TO: usize = 4;

impl Steps {
    fn new() -> Self {
        let recording = Recording::load("partition").finished_jobs_only();
        let moments: Vec<Ts> = recording.jobs.iter().map(|change| change.commit_ts.ts()).collect();
        let disk = FaultyDisk::new(Vec::new(), Fault::Never);
        drop(SchemaStore::open_on(SchemaOptions::default(), disk.clone()).unwrap());
        // A few tables do; the recording makes its own.
        let metadata = recording.user_metadata_at(recording.history.header.base_ts);
        let needed = |key: &[u8]| match classify(key) {
            Ok(MetaEntry::Table(_, id)) => id == DDL_JOB_TABLE || id.get() % 10 == 0,
            _ => true,
        };
        let metadata = metadata.filter(|(key, _)| needed(key)).collect();
        let mut steps = Self { recording, metadata, new_file: disk.content(), moments, events: Vec::new() };
        let store = SchemaStore::open(SchemaOptions::default()).unwrap();
        steps.run(&store).1.unwrap();
        steps.events = all_events(&store, steps.oldest());
        assert_eq!(steps.events.len(), steps.moments.len() - COLLECTED_TO - 1);
        steps
    }

    fn oldest(&self) -> Ts {
        self.moments[COLLECTED_TO]
    }

    /// Feeds `store` to the end or its first failure; gives what it acknowledged last.
    fn run(&self, store: &SchemaStore) -> (Option<Ts>, Result<(), SchemaError>) {
        let mut acknowledged = store.is_initialised().then(|| store.resolved().ts());
        let result = self.feed(store, &mut acknowledged);
        (acknowledged, result)
    }

    fn feed(&self, store: &SchemaStore, acknowledged: &mut Option<Ts>) -> Result<(), SchemaError> {
        if acknowledged.is_none() {
            let base = self.recording.history.header.base_ts;
            store.initialise(base, self.metadata.iter().cloned())?;
            *acknowledged = Some(base);
        }
        for (nth, change) in self.recording.jobs.iter().enumerate() {
            let moment = change.commit_ts.ts();
            if Some(moment) > *acknowledged {
                store.apply(std::slice::from_ref(change))?;
                store.advance(moment.as_resolved())?;
                *acknowledged = Some(moment);
            }
            if nth == COLLECTED_AFTER {
                store.collect_garbage(self.oldest())?;
            }
        }
        Ok(())
    }

    /// The events of a store that was just opened are those up to what it has resolved.
    fn assert_sound(&self, store: &SchemaStore, what: &str) {
        if store.is_initialised() {
            let resolved = store.resolved();
            let known = self.events.iter().filter(|event| event.finished_ts.ts() <= resolved.ts());
            let found = all_events(store, self.oldest());
            assert!(found.iter().eq(known), "{what}: other events than were written");
        }
    }

    /// The store opens again with all that was acknowledged, and goes on to the end.
    fn assert_recovers(&self, content: Vec<u8>, acknowledged: Option<Ts>, what: &str) {
        let disk = FaultyDisk::new(content, Fault::Never);
        let store = SchemaStore::open_on(SchemaOptions::default(), disk).expect(what);
        let found = store.is_initialised().then(|| store.resolved().ts());
        assert!(found >= acknowledged, "{what}: {found:?} after {acknowledged:?}");
        self.assert_sound(&store, what);
        self.run(&store).1.expect(what);
        self.assert_sound(&store, what);
        assert_eq!(Some(&store.resolved().ts()), self.moments.last(), "{what}");
    }
}

/// Opens and feeds a store on a disk that fails; what it acknowledged and what stopped it.
fn run_on(steps: &Steps, disk: &FaultyDisk) -> (Option<Ts>, Result<(), SchemaError>) {
    match SchemaStore::open_on(SchemaOptions::default(), disk.clone()) {
        Err(error) => (None, Err(error)),
        Ok(store) => {
            let (acknowledged, result) = steps.run(&store);
            if let (Err(_), Some(acknowledged)) = (&result, acknowledged) {
                assert_eq!(store.resolved().ts(), acknowledged, "nothing more is visible");
                let again = store.advance(Ts::MAX.as_resolved()).expect_err("poisoned");
                assert!(matches!(again, SchemaError::Poisoned { .. }), "{again}");
                assert_eq!(again.class(), ErrorClass::Operator);
            }
            (acknowledged, result)
        }
    }
}

fn calls_of_a_whole_run(steps: &Steps) -> usize {
    let disk = FaultyDisk::new(steps.new_file.clone(), Fault::Never);
    run_on(steps, &disk).1.unwrap();
    disk.calls()
}

/// Every n-th call, with another offset for each kind of loss, so that together they cover about all.
const STRIDE: usize = 4;

#[test]
fn power_may_go_at_any_write_or_sync() {
    let steps = Steps::new();
    let calls = calls_of_a_whole_run(&steps);
    for (offset, loss) in [Loss::All, Loss::Later, Loss::Some, Loss::Torn].into_iter().enumerate() {
        for at in (offset..calls).step_by(STRIDE) {
            let disk = FaultyDisk::new(steps.new_file.clone(), Fault::PowerAt(at));
            let (acknowledged, result) = run_on(&steps, &disk);
            let what = format!("power lost at call {at} of {calls}, {loss:?} unsynced writes lost");
            if let Err(error) = result {
                assert_eq!(error.code(), "TG-SCHEMA-011", "{what}: {error}");
            }
            steps.assert_recovers(disk.after(loss), acknowledged, &what);
        }
    }
}

#[test]
fn a_call_that_fails_once_stops_the_store_and_a_restart_recovers() {
    let steps = Steps::new();
    let calls = calls_of_a_whole_run(&steps);
    for at in (0..calls).step_by(2) {
        let disk = FaultyDisk::new(steps.new_file.clone(), Fault::ErrorAt(at));
        let (acknowledged, _) = run_on(&steps, &disk);
        let (kept, lost) = (disk.content(), disk.after(Loss::All));
        for (what, content) in [("kept", kept), ("lost", lost)] {
            let what = format!("call {at} of {calls} failed, then the cache was {what}");
            steps.assert_recovers(content, acknowledged, &what);
        }
    }
}

/// Flips one bit at a time, or cuts the file, after a clean end. The damage is found, or it was in a place
/// that holds nothing; a schema is never read wrongly.
#[test]
fn rotten_bits_are_found_and_never_read_as_a_schema() {
    let steps = Steps::new();
    let disk = FaultyDisk::new(Vec::new(), Fault::Never);
    run_on(&steps, &disk).1.unwrap();
    let content = disk.content();
    let check = |content: Vec<u8>, what: &str| {
        let disk = FaultyDisk::new(content, Fault::Never);
        let open = || SchemaStore::open_on(SchemaOptions::default(), disk.clone());
        let Ok(opened) = catch_unwind(AssertUnwindSafe(open)) else { panic!("{what}: panicked") };
        if let Ok(store) = opened {
            steps.assert_sound(&store, what);
        }
    };
    let mut place = 12_345usize;
    for round in 0..300 {
        // A linear congruential walk over the file: the same places in every run.
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (place >> 16) % content.len();
        let mut rotten = content.clone();
        rotten[at] ^= 1 << (round % 8);
        check(rotten, &format!("bit {} of byte {at} flipped", round % 8));
    }
    for part in 1..16 {
        let len = content.len() * part / 16;
        check(content[..len].to_vec(), &format!("cut to {len} bytes"));
    }
}

#[test]
fn a_file_that_was_never_finished_does_not_stand_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("schema.new"), b"half a file").unwrap();
    let options = || SchemaOptions { dir: Some(dir.path().to_owned()), ..SchemaOptions::default() };
    let steps = Steps::new();
    steps.run(&SchemaStore::open(options()).unwrap()).1.unwrap();
    let store = SchemaStore::open(options()).unwrap();
    assert_eq!(all_events(&store, steps.oldest()), steps.events);
}
