use tidegate_codec::event::{DdlEvent, OwnedRow, RowChanged};
use tidegate_mini::{Admission, Callback, CallbackError, Checkpoint};

struct Keep {
    rows: Vec<OwnedRow>,
}

impl Callback for Keep {
    fn on_row(&mut self, row: RowChanged<'_>) -> Result<Admission, CallbackError> {
        self.rows.push(row.to_owned());
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
