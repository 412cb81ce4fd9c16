use tidegate_codec::event::RowChanged;

fn rename(row: RowChanged<'_>) {
    row.table().name.lower = "other".to_owned();
    row.layout.shared_table().columns.clear();
}

fn main() {}
