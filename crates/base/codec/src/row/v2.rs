//! Row format v2: sorted ids, end offsets, cells without flags (`reference/tidb-keys-and-rows.md` §4.1).
//!
//! Only the header is kept; where the arrays lie follows from its two counts, and that is computed again for
//! each column. So a row is opened in a few nanoseconds, whatever its size.

use super::Found;

/// First byte of every v2 row; v1 rows never begin with it.
pub(crate) const MARKER: u8 = 0x80;
/// Flag: ids and offsets are 32 bits wide.
pub(crate) const LARGE: u8 = 1;
/// Flag: a checksum section follows the data.
pub(crate) const CHECKSUM: u8 = 1 << 1;
/// Marker, flags and the two counts.
pub(crate) const HEADER_LEN: usize = 6;

/// The header of a v2 row whose arrays are all there. Its methods want the row value it was read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    // Wider than need be, so that each is written and read by itself: narrow neighbours would be read
    // together, which stalls right after they were written one by one.
    /// Columns with a cell.
    cells: u32,
    /// The same if ids are small, else 0: one number to test where only rows with small ids are wanted.
    small_cells: u32,
    /// Columns that are NULL.
    nulls: u32,
    flags: u32,
}

/// The arrays of a row with small ids, or with large ones.
struct Arrays<'a, const ID: usize, const END: usize> {
    /// Ids of the cells, ascending.
    ids: &'a [[u8; ID]],
    /// Ids of the columns that are NULL, ascending.
    null_ids: &'a [[u8; ID]],
    /// End of each cell in `data`.
    ends: &'a [[u8; END]],
    /// Cells, and the checksum section after them.
    data: &'a [u8],
}

type Small<'a> = Arrays<'a, 1, 2>;
type Large<'a> = Arrays<'a, 4, 4>;

impl<'a, const ID: usize, const END: usize> Arrays<'a, ID, END> {
    /// `None` when the value is too short for them.
    #[inline]
    fn of(header: &Header, value: &'a [u8]) -> Option<Self> {
        let (cells, nulls) = (to_usize(header.cells), to_usize(header.nulls));
        let (ids, rest) = value.get(HEADER_LEN..)?.split_at_checked(cells * ID)?;
        let (null_ids, rest) = rest.split_at_checked(nulls * ID)?;
        let (ends, data) = rest.split_at_checked(cells * END)?;
        Some(Self {
            ids: ids.as_chunks().0,
            null_ids: null_ids.as_chunks().0,
            ends: ends.as_chunks().0,
            data,
        })
    }

    /// Offset of the data in the row value.
    const fn data_offset(&self) -> usize {
        HEADER_LEN + (self.ids.len() + self.null_ids.len()) * ID + self.ends.len() * END
    }

    /// Finds the cell of column `id`, looking at `slot` first; `key` gives ids their order.
    #[inline]
    fn find(&self, id: [u8; ID], slot: usize, key: impl Fn(&[u8; ID]) -> u32) -> Option<usize> {
        match self.ids.get(slot) {
            Some(guess) if *guess == id => Some(slot),
            _ => self.ids.binary_search_by_key(&key(&id), key).ok(),
        }
    }

    /// The cell between two ends; the first one begins at 0.
    #[inline]
    fn cell(&self, at: usize, number: impl Fn(&[u8; END]) -> usize) -> Found<'a> {
        let end = self.ends.get(at).map_or(usize::MAX, &number);
        let start = at.checked_sub(1).map_or(0, |before| self.ends.get(before).map_or(usize::MAX, &number));
        match self.data.get(start..end) {
            Some(bytes) => Found::Cell(bytes),
            None => Found::Damaged(self.data_offset().saturating_add(start)),
        }
    }
}

#[inline]
fn small_end(end: &[u8; 2]) -> usize {
    usize::from(u16::from_le_bytes(*end))
}

#[inline]
fn large_end(end: &[u8; 4]) -> usize {
    usize::try_from(u32::from_le_bytes(*end)).unwrap_or(usize::MAX)
}

/// Counts are 16 bits wide.
#[inline]
fn to_usize(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl Header {
    /// `None` when this is no v2 row, or its arrays are not all there.
    #[inline]
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let &[MARKER, flags, n0, n1, m0, m1] = value.first_chunk::<HEADER_LEN>()? else { return None };
        let cells = u32::from(u16::from_le_bytes([n0, n1]));
        let nulls = u32::from(u16::from_le_bytes([m0, m1]));
        let flags = u32::from(flags);
        let (id_len, end_len) = if flags & u32::from(LARGE) == 0 { (1, 2) } else { (4, 4) };
        let arrays_len = to_usize(cells) * (id_len + end_len) + to_usize(nulls) * id_len;
        let small_cells = if flags & u32::from(LARGE) == 0 { cells } else { 0 };
        (value.len() - HEADER_LEN >= arrays_len).then_some(Self { cells, small_cells, nulls, flags })
    }

    const fn is_large(&self) -> bool {
        self.flags & LARGE as u32 != 0
    }

    pub(crate) const fn has_checksum(&self) -> bool {
        self.flags & CHECKSUM as u32 != 0
    }

    /// The cell at `slot`, if that is the cell of column `id` and ids are small. All that most columns of
    /// most rows need, and small enough to be inlined where it is called.
    #[inline]
    pub(crate) fn cell_at<'a>(&self, value: &'a [u8], id: u32, slot: usize) -> Option<&'a [u8]> {
        let cells = to_usize(self.cells);
        if slot >= to_usize(self.small_cells) || u32::from(*value.get(HEADER_LEN + slot)?) != id {
            return None;
        }
        let ends = HEADER_LEN + cells + to_usize(self.nulls);
        let data = ends + 2 * cells;
        let end = small_end(value.get(ends + 2 * slot..)?.first_chunk()?);
        let start = if slot == 0 { 0 } else { small_end(value.get(ends + 2 * slot - 2..)?.first_chunk()?) };
        value.get(data + start..data + end)
    }

    /// Finds column `id`, looking at cell `slot` first.
    pub(crate) fn find<'a>(&self, value: &'a [u8], id: u32, slot: usize) -> Found<'a> {
        if self.is_large() {
            return self.find_large(value, id, slot);
        }
        let (Ok(id), Some(arrays)) = (u8::try_from(id), Small::of(self, value)) else { return Found::Absent };
        match arrays.find([id], slot, |[id]| u32::from(*id)) {
            Some(at) => arrays.cell(at, small_end),
            None if arrays.null_ids.binary_search(&[id]).is_ok() => Found::Null,
            None => Found::Absent,
        }
    }

    fn find_large<'a>(&self, value: &'a [u8], id: u32, slot: usize) -> Found<'a> {
        let Some(arrays) = Large::of(self, value) else { return Found::Absent };
        let number = |raw: &[u8; 4]| u32::from_le_bytes(*raw);
        match arrays.find(id.to_le_bytes(), slot, number) {
            Some(at) => arrays.cell(at, large_end),
            None if arrays.null_ids.binary_search_by_key(&id, number).is_ok() => Found::Null,
            None => Found::Absent,
        }
    }

    /// The greatest column id that the row mentions.
    pub(crate) fn last_id(&self, value: &[u8]) -> Option<u32> {
        if self.is_large() {
            let arrays = Large::of(self, value)?;
            let number = |id: &[u8; 4]| u32::from_le_bytes(*id);
            return arrays.ids.last().map(number).max(arrays.null_ids.last().map(number));
        }
        let arrays = Small::of(self, value)?;
        arrays.ids.last().max(arrays.null_ids.last()).map(|[id]| u32::from(*id))
    }

    /// Length of the row value without its checksum section, and that section.
    pub(crate) fn checksum_section<'a>(&self, value: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let (offset, len) = if self.is_large() {
            let arrays = Large::of(self, value)?;
            (arrays.data_offset(), arrays.ends.last().map_or(0, large_end))
        } else {
            let arrays = Small::of(self, value)?;
            (arrays.data_offset(), arrays.ends.last().map_or(0, small_end))
        };
        let end = offset.checked_add(len)?;
        Some((end, value.get(end..)?))
    }
}
