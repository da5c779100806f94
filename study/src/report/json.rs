//! The results for programs.

use serde_json::{Value as Json, json};

use crate::comparison::{Figure, Row};
use crate::experiment::Value;

/// The rows as a JSON array of objects with exactly the keys `id`, `predicted`, `published`, `unit` and `role`.
///
/// `predicted` is a number, an array of numbers, a boolean for a statement, or null where a result is not modelled or its points
/// are not simulated yet. `published` is a number, a boolean for a statement, `{"at_least": N}` or `{"at_most": N}` for a bound, or
/// null where it is withheld or was not published.
pub fn json(rows: &[Row]) -> String {
    let objects = rows.iter().map(|row| {
        let predicted = row.predicted.as_ref().map_or(Json::Null, value);
        let published = row.published.map_or(Json::Null, |figure| match figure {
            Figure::Exactly(value) => json!(value),
            Figure::AtLeast(value) => json!({ "at_least": value }),
            Figure::AtMost(value) => json!({ "at_most": value }),
            Figure::Holds(holds) => json!(holds),
        });
        json!({ "id": row.id, "predicted": predicted, "published": published, "unit": row.unit, "role": row.kind() })
    });
    let lines: Vec<String> = objects.map(|object| format!("  {object}")).collect();
    if lines.is_empty() { "[]\n".to_owned() } else { format!("[\n{}\n]\n", lines.join(",\n")) }
}

/// A prediction as JSON.
pub fn value(value: &Value) -> Json {
    match value {
        Value::Number(number) => json!(number),
        Value::List(numbers) => json!(numbers),
        Value::Holds(holds) => json!(holds),
    }
}
