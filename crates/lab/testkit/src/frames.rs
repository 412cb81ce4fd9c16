//! `NAME.frames.jsonl.zst`: recorded messages of `cdcpb.ChangeData/EventFeedV2`.

use std::borrow::Cow;
use std::path::Path;

use bytes::Bytes;
use serde::Deserialize;
use tidegate_core::StoreId;

use crate::file::{base64, decompress, line_error, lines, name_of, read};
use crate::{DataError, LineProblem};

/// One recorded message between a public client and a store, in time order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Microseconds since the recording proxy started.
    pub at_us: u64,
    /// The store spoken to.
    pub store_id: StoreId,
    /// Which stream of the proxy; never reused.
    pub stream: u64,
    /// What was said.
    pub kind: FrameKind,
}

/// What a frame carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A `cdcpb.ChangeDataRequest`, client to store.
    Request(Bytes),
    /// A `cdcpb.ChangeDataEvent`, store to client.
    Event(Bytes),
    /// The stream broke, with the reason.
    Closed(String),
}

#[derive(Deserialize)]
struct FrameLine<'a> {
    t_us: u64,
    store: u64,
    stream: u64,
    #[serde(borrow)]
    dir: Cow<'a, str>,
    #[serde(borrow, default)]
    b64: Cow<'a, str>,
    #[serde(borrow, default)]
    err: Cow<'a, str>,
}

/// Reads all frames of a file, in time order.
///
/// # Errors
/// [`DataError`] with the line and the reason if the file cannot be read or is damaged.
pub fn load_frames(path: impl AsRef<Path>) -> Result<Vec<Frame>, DataError> {
    let path = path.as_ref();
    let file = name_of(path);
    let text = decompress(&file, &read(path)?)?;
    lines(&text)
        .map(|(number, line)| frame(line).map_err(|problem| line_error(&file, number, problem)))
        .collect()
}

fn frame(line: &[u8]) -> Result<Frame, LineProblem> {
    let line: FrameLine<'_> = serde_json::from_slice(line).map_err(LineProblem::Json)?;
    let kind = match line.dir.as_ref() {
        "c2s" => FrameKind::Request(base64("b64", &line.b64)?),
        "s2c" => FrameKind::Event(base64("b64", &line.b64)?),
        "close" => FrameKind::Closed(line.err.into_owned()),
        other => return Err(LineProblem::Direction(other.to_owned())),
    };
    Ok(Frame { at_us: line.t_us, store_id: StoreId(line.store), stream: line.stream, kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    #[test]
    fn the_live_recording_holds_six_broken_streams() {
        // The recording's notes say so.
        let frames = load_frames(data::path("bank-live.frames.jsonl.zst")).expect("recorded data");
        assert_eq!(frames.iter().filter(|frame| matches!(frame.kind, FrameKind::Closed(_))).count(), 6);
        assert!(frames.is_sorted_by_key(|frame| frame.at_us));
    }
}
