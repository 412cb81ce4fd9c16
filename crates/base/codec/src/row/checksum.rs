//! The checksum that TiDB adds to rows on request (`reference/tidb-keys-and-rows.md` §8).

use super::{RowView, v2};
use crate::key::Handle;
use crate::memcomparable::int_bytes;
use crate::reader::Reader;
use crate::text::write_text;
use crate::value::Value;

/// Bits of the header that hold the version.
const VERSION_MASK: u8 = 7;
/// Header bit: a second sum follows, of the columns as an ongoing DDL has them.
const EXTRA: u8 = 1 << 3;

/// The checksum section of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// 0: over column values; 1: over the stored bytes and the key; 2: over the stored bytes and the handle.
    pub version: u8,
    /// CRC-32 (IEEE).
    pub sum: u32,
    /// The second sum, written during some DDL.
    pub extra: Option<u32>,
    /// Bytes of the row value that versions 1 and 2 cover: all up to and including the section's header.
    covered: usize,
}

/// A row's checksum is damaged or does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChecksumError {
    /// The section is missing or cut, though the row's flags announce it.
    #[error("checksum section is damaged")]
    Damaged,
    /// A version that is not known here.
    #[error("unknown checksum version {0}")]
    UnknownVersion(u8),
    /// A column that the sum covers cannot be decoded.
    #[error("checksum covers a column that cannot be decoded")]
    Undecodable,
    /// The row is not what was written.
    #[error("row checksum is {found:08x}, expected {expected:08x}")]
    Mismatch {
        /// What the row says.
        expected: u32,
        /// What its bytes give.
        found: u32,
    },
}

impl Checksum {
    pub(super) fn read(header: &v2::Header, value: &[u8]) -> Result<Option<Self>, ChecksumError> {
        if !header.has_checksum() {
            return Ok(None);
        }
        let (data_end, section) = header.checksum_section(value).ok_or(ChecksumError::Damaged)?;
        let mut reader = Reader::new(section);
        let header = reader.u8().ok_or(ChecksumError::Damaged)?;
        let sum = reader.u32_le().ok_or(ChecksumError::Damaged)?;
        let extra =
            if header & EXTRA != 0 { Some(reader.u32_le().ok_or(ChecksumError::Damaged)?) } else { None };
        Ok(Some(Self { version: header & VERSION_MASK, sum, extra, covered: data_end + 1 }))
    }

    pub(super) fn verify(&self, row: &RowView<'_>, raw_key: &[u8]) -> Result<(), ChecksumError> {
        let found = match self.version {
            0 => column_sum(row)?,
            1 => self.bytes_sum(row, raw_key),
            2 => match row.handle() {
                Handle::Int(id) => self.bytes_sum(row, &int_bytes(id)),
                Handle::Common(datums) => self.bytes_sum(row, datums),
            },
            version => return Err(ChecksumError::UnknownVersion(version)),
        };
        // The extra sum is over the columns as they are on one side of an ongoing DDL; either may be ours.
        if found == self.sum || (self.version == 0 && self.extra == Some(found)) {
            return Ok(());
        }
        Err(ChecksumError::Mismatch { expected: self.sum, found })
    }

    fn bytes_sum(&self, row: &RowView<'_>, tail: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(row.value().get(..self.covered).unwrap_or_default());
        hasher.update(tail);
        hasher.finalize()
    }
}

/// The sum over column values, in the order of column ids (§8.3).
fn column_sum(row: &RowView<'_>) -> Result<u32, ChecksumError> {
    let columns = &row.table().columns;
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|index| columns.get(*index).map(|column| column.id));
    let mut bytes = Vec::new();
    for index in order {
        let value = row.column(index).map_err(|_| ChecksumError::Undecodable)?;
        put_value(&value, &mut bytes)?;
    }
    Ok(crc32fast::hash(&bytes))
}

/// Appends what a column contributes to the sum; NULL contributes nothing.
fn put_value(value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), ChecksumError> {
    let double = |number: f64| if number.is_finite() { number } else { 0.0 };
    match value {
        Value::Null | Value::Virtual => {}
        Value::Int(int) => out.extend_from_slice(&int.to_le_bytes()),
        Value::UInt(uint) => out.extend_from_slice(&uint.to_le_bytes()),
        Value::Year(year) => out.extend_from_slice(&u64::from(*year).to_le_bytes()),
        Value::Enum { index, .. } => out.extend_from_slice(&index.to_le_bytes()),
        Value::Set { bits, .. } | Value::Bit { bits, .. } => out.extend_from_slice(&bits.to_le_bytes()),
        Value::Float(number) => out.extend_from_slice(&double(f64::from(*number)).to_le_bytes()),
        Value::Double(number) => out.extend_from_slice(&double(*number).to_le_bytes()),
        Value::Vector(vector) => out.extend_from_slice(vector.as_bytes()),
        as_text => {
            let start = out.len();
            out.extend_from_slice(&[0; 4]);
            write_text(as_text, out).map_err(|_| ChecksumError::Undecodable)?;
            let len = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
            if let Some(slot) = out.get_mut(start..).and_then(|tail| tail.first_chunk_mut()) {
                *slot = len.to_le_bytes();
            }
        }
    }
    Ok(())
}
