use tidegate_codec::event::RowChanged;
use tidegate_codec::value::Value;

fn first_value(row: RowChanged<'_>) -> Value<'static> {
    row.current().expect("a row").column(0).expect("a value")
}

fn main() {}
