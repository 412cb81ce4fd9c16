//! Row format v2: sorted ids, end offsets, cells without flags (`reference/tidb-keys-and-rows.md` §4.1).

use super::Found;

/// First byte of every v2 row; v1 rows never begin with it.
pub(crate) const MARKER: u8 = 0x80;
/// Flag: ids and offsets are 32 bits wide.
pub(crate) const LARGE: u8 = 1;
/// Flag: a checksum section follows the data.
pub(crate) const CHECKSUM: u8 = 1 << 1;
/// Marker, flags and the two counts.
pub(crate) const HEADER_LEN: usize = 6;

/// A v2 row taken apart, not yet searched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    large: bool,
    has_checksum: bool,
    /// Ids of the cells, ascending.
    ids: &'a [u8],
    /// Ids of the columns that are NULL, ascending.
    null_ids: &'a [u8],
    /// End of each cell in `data`.
    ends: &'a [u8],
    /// Cells, and the checksum section after them.
    data: &'a [u8],
    /// Offset of `data` in the row value.
    data_offset: usize,
}

impl<'a> Row<'a> {
    /// `None` when the arrays are not all there.
    #[inline]
    pub(crate) fn parse(value: &'a [u8]) -> Option<Self> {
        let (&[_, flags, n0, n1, m0, m1], rest) = value.split_first_chunk::<HEADER_LEN>()?;
        let large = flags & LARGE != 0;
        let (id_len, end_len) = if large { (4, 4) } else { (1, 2) };
        let cells = usize::from(u16::from_le_bytes([n0, n1]));
        let nulls = usize::from(u16::from_le_bytes([m0, m1]));
        let (ids, rest) = rest.split_at_checked(cells * id_len)?;
        let (null_ids, rest) = rest.split_at_checked(nulls * id_len)?;
        let (ends, data) = rest.split_at_checked(cells * end_len)?;
        let has_checksum = flags & CHECKSUM != 0;
        let data_offset = HEADER_LEN + ids.len() + null_ids.len() + ends.len();
        Some(Self { large, has_checksum, ids, null_ids, ends, data, data_offset })
    }

    /// Finds column `id`, looking at cell `slot` first.
    #[inline]
    pub(crate) fn find(&self, id: u32, slot: usize) -> Found<'a> {
        if self.large { self.find_large(id, slot) } else { self.find_small(id, slot) }
    }

    #[inline]
    fn find_small(&self, id: u32, slot: usize) -> Found<'a> {
        let Ok(id) = u8::try_from(id) else { return Found::Absent };
        let at = match self.ids.get(slot) {
            Some(guess) if *guess == id => Ok(slot),
            _ => self.ids.binary_search(&id),
        };
        let Ok(at) = at else {
            return self.null_or_absent(self.null_ids.binary_search(&id).is_ok());
        };
        let (ends, _) = self.ends.as_chunks::<2>();
        let end = |index: usize| ends.get(index).map(|end| usize::from(u16::from_le_bytes(*end)));
        self.cell(at.checked_sub(1).map_or(Some(0), end), end(at))
    }

    fn find_large(&self, id: u32, slot: usize) -> Found<'a> {
        let (ids, _) = self.ids.as_chunks::<4>();
        let search = |ids: &[[u8; 4]]| ids.binary_search_by(|raw| u32::from_le_bytes(*raw).cmp(&id));
        let at = match ids.get(slot) {
            Some(guess) if u32::from_le_bytes(*guess) == id => Ok(slot),
            _ => search(ids),
        };
        let Ok(at) = at else {
            return self.null_or_absent(search(self.null_ids.as_chunks::<4>().0).is_ok());
        };
        let (ends, _) = self.ends.as_chunks::<4>();
        let end =
            |index: usize| ends.get(index).and_then(|end| usize::try_from(u32::from_le_bytes(*end)).ok());
        self.cell(at.checked_sub(1).map_or(Some(0), end), end(at))
    }

    const fn null_or_absent(&self, null: bool) -> Found<'a> {
        if null { Found::Null } else { Found::Absent }
    }

    #[inline]
    fn cell(&self, start: Option<usize>, end: Option<usize>) -> Found<'a> {
        let (Some(start), Some(end)) = (start, end) else { return Found::Damaged(HEADER_LEN) };
        match self.data.get(start..end) {
            Some(bytes) => Found::Cell(bytes, self.data_offset + start),
            None => Found::Damaged(self.data_offset.saturating_add(start)),
        }
    }

    /// End of the last cell within the data; `None` when it lies outside.
    fn data_len(&self) -> Option<usize> {
        let len = if self.large {
            self.ends
                .last_chunk::<4>()
                .map_or(Some(0), |end| usize::try_from(u32::from_le_bytes(*end)).ok())?
        } else {
            self.ends.last_chunk::<2>().map_or(0, |end| usize::from(u16::from_le_bytes(*end)))
        };
        (len <= self.data.len()).then_some(len)
    }

    /// The greatest column id that the row mentions.
    pub(crate) fn last_id(&self) -> Option<u32> {
        let last = |ids: &[u8]| {
            if self.large {
                ids.last_chunk().map(|id| u32::from_le_bytes(*id))
            } else {
                ids.last().map(|id| u32::from(*id))
            }
        };
        last(self.ids).max(last(self.null_ids))
    }

    pub(crate) const fn has_checksum(&self) -> bool {
        self.has_checksum
    }

    /// Length of the row value without its checksum section, and that section.
    pub(crate) fn checksum_section(&self) -> Option<(usize, &'a [u8])> {
        let len = self.data_len()?;
        Some((self.data_offset + len, self.data.get(len..)?))
    }
}
