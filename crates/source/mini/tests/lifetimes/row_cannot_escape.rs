use tidegate_codec::event::{DdlEvent, RowChanged};
use tidegate_mini::{Admission, Callback, CallbackError, Checkpoint};

struct Hoard<'a> {
    rows: Vec<RowChanged<'a>>,
}

impl Callback for Hoard<'static> {
    fn on_row(&mut self, row: RowChanged<'_>) -> Result<Admission, CallbackError> {
        self.rows.push(row);
        Ok(Admission::Taken)
    }

    fn on_ddl(&mut self, _: &DdlEvent) -> Result<(), CallbackError> {
        Ok(())
    }

    fn on_checkpoint(&mut self, _: &Checkpoint) -> Result<(), CallbackError> {
        Ok(())
    }
}

fn main() {}
