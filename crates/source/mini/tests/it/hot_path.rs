//! The hot path allocates nothing per row (`spec/mini-cdc.md` §10).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Arc, Mutex};

use tidegate_codec::event::{DdlEvent, RowChanged};
use tidegate_mini::{Admission, Callback, CallbackError, Checkpoint, Runtime};

use crate::follow::{follow_all, playground, reach, recording};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting per thread, so that other tests of the process do not disturb.
struct Counting;

// SAFETY: every call is handed to the system's allocator unchanged; counting touches no memory of it.
#[expect(unsafe_code, reason = "a global allocator cannot be written without")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Counts allocations from one row's callback to the next within a batch, its own work left out.
#[derive(Default)]
struct Meter {
    last: Option<u64>,
    steps: Arc<Mutex<Vec<u64>>>,
}

impl Callback for Meter {
    fn on_row(&mut self, row: RowChanged<'_>) -> Result<Admission, CallbackError> {
        let now = allocations();
        if let Some(last) = self.last {
            self.steps.lock().expect("not poisoned").push(now - last);
        }
        // A lazy read of one column must not allocate either.
        let before = allocations();
        let decoded = row.current().map(|view| view.column(0).map(|value| value.is_null()));
        assert_eq!((decoded, allocations()), (Some(Ok(false)), before), "reading an integer key");
        self.last = Some(allocations());
        Ok(Admission::Taken)
    }

    fn on_ddl(&mut self, _: &DdlEvent) -> Result<(), CallbackError> {
        self.last = None;
        Ok(())
    }

    fn on_checkpoint(&mut self, _: &Checkpoint) -> Result<(), CallbackError> {
        self.last = None;
        Ok(())
    }

    async fn ready(&mut self) -> Result<(), CallbackError> {
        self.last = None;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivering_a_row_allocates_nothing() {
    let (history, _) = recording("demo");
    let (start, end) = (history.header.base_ts, history.header.end_ts);
    let (playground, upstream) = playground(history).await;
    let meter = Meter::default();
    let steps = Arc::clone(&meter.steps);
    let handle = Runtime::start(&upstream, follow_all(start), meter).await.expect("it starts");
    let report = reach(handle, end).await;
    assert!(report.error.is_none(), "{report:?}");
    let steps = std::mem::take(&mut *steps.lock().expect("not poisoned"));
    assert!(steps.len() > 5000, "{} steps measured", steps.len());
    let allocating = steps.iter().filter(|&&n| n > 0).count();
    assert_eq!(allocating, 0, "of {} steps, at most {:?} allocations", steps.len(), steps.iter().max());
    upstream.close().await;
    playground.stop().await;
}
