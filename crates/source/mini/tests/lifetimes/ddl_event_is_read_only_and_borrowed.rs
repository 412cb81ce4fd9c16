use tidegate_codec::event::{DdlEvent, RowChanged};
use tidegate_mini::{Admission, Callback, CallbackError, Checkpoint};

struct Last {
    ddl: Option<&'static DdlEvent>,
}

impl Callback for Last {
    fn on_row(&mut self, _: RowChanged<'_>) -> Result<Admission, CallbackError> {
        Ok(Admission::Taken)
    }

    fn on_ddl(&mut self, ddl: &DdlEvent) -> Result<(), CallbackError> {
        self.ddl = Some(ddl);
        Ok(())
    }

    fn on_checkpoint(&mut self, _: &Checkpoint) -> Result<(), CallbackError> {
        Ok(())
    }
}

fn forget_dropped_tables(ddl: &DdlEvent) {
    ddl.need_added_tables.clear();
}

fn main() {}
