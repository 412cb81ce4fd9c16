//! Reading and writing the compressed container of every recorded file.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tidegate_core::span::Hex;

use crate::{DataError, LineProblem};

/// A damaged or hostile file must not exhaust memory: recorded histories decompress to a few megabytes, the
/// largest generated ones for benches to some hundred.
const DECOMPRESSED_BYTES_MAX: usize = 2 << 30;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The level at which repeated recordings compress about fivefold in well under a second.
const ZSTD_LEVEL: i32 = 6;

/// The file's name without its folder: messages must not depend on where a checkout lies.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    fs::read(path).map_err(|source| DataError::Io { file: name_of(path), source })
}

pub(crate) fn decompress(file: &str, compressed: &[u8]) -> Result<Vec<u8>, DataError> {
    if !compressed.starts_with(&ZSTD_MAGIC) {
        let first = compressed.get(..4).unwrap_or(compressed);
        return Err(DataError::NotZstd { file: file.to_owned(), found: Hex(first).to_string() });
    }
    let mut text = Vec::with_capacity(compressed.len().saturating_mul(8).min(DECOMPRESSED_BYTES_MAX));
    let limit = u64::try_from(DECOMPRESSED_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let outcome =
        zstd::Decoder::new(compressed).and_then(|decoder| decoder.take(limit).read_to_end(&mut text));
    match outcome {
        Err(source) => Err(DataError::Compressed { file: file.to_owned(), intact: text.len(), source }),
        Ok(read) if read > DECOMPRESSED_BYTES_MAX => {
            Err(DataError::TooLarge { file: file.to_owned(), limit: DECOMPRESSED_BYTES_MAX })
        }
        Ok(_) => Ok(text),
    }
}

/// Writes to a neighbour first and renames it, so that a reader never sees half a file.
pub(crate) fn write(path: &Path, text: &[u8]) -> Result<(), DataError> {
    let access = |source: io::Error| DataError::Io { file: name_of(path), source };
    let compressed = zstd::encode_all(text, ZSTD_LEVEL).map_err(access)?;
    let partial = path.with_extension("partial");
    fs::write(&partial, compressed).and_then(|()| fs::rename(&partial, path)).map_err(access)
}

/// The non-empty lines with their numbers, counted from 1.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    text.split(|byte| *byte == b'\n')
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .filter(|(_, line)| !line.is_empty())
}

pub(crate) fn line_error(file: &str, line: usize, problem: LineProblem) -> DataError {
    DataError::Line { file: file.to_owned(), line, problem }
}

pub(crate) fn base64(field: &'static str, text: &str) -> Result<Bytes, LineProblem> {
    STANDARD.decode(text).map(Bytes::from).map_err(|source| LineProblem::Base64 { field, source })
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
