//! Garbage collection and destruction (`reference/tikv-kv-protocol.md` §7.10).

use bytes::Bytes;
use tidegate_core::{Span, Ts};

use super::{Engine, KeyState, VersionKind, bounds};

impl Engine {
    /// Drops what no snapshot at or above `safe_point` reads.
    pub(crate) fn collect_garbage(&mut self, safe_point: Ts) {
        self.keys.retain(|_, state| {
            state.collect_garbage(safe_point);
            state.lock.is_some() || !state.versions.is_empty()
        });
    }

    /// Removes a span of encoded keys with everything in it. Change feeds do not see it.
    pub(crate) fn destroy(&mut self, span: &Span) {
        let doomed: Vec<Bytes> =
            self.keys.range::<[u8], _>(bounds(span)).map(|(key, _)| key.clone()).collect();
        for encoded in doomed {
            self.locked.remove(&encoded);
            self.keys.remove(&encoded);
        }
    }
}

impl KeyState {
    fn collect_garbage(&mut self, safe_point: Ts) {
        let kept = self
            .versions
            .iter()
            .rposition(|version| version.commit_ts.ts() <= safe_point && version.is_data());
        let mut index = 0;
        self.versions.retain(|version| {
            let newest_below = kept == Some(index) && version.kind == VersionKind::Put;
            index += 1;
            version.commit_ts.ts() > safe_point || newest_below
        });
    }
}
