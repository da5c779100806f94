//! Answers as text, to be kept from one study to the next.
//!
//! An answer is kept with the whole question and the version of the model that gave it; text that is of another question or
//! model, or damaged, is no answer.

use serde::{Deserialize, Serialize};

use crate::workload::{Answer, Failure, Question};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    model: String,
    question: String,
    answer: Answer,
}

#[derive(Serialize)]
struct Keeping<'a> {
    model: &'a str,
    question: &'a str,
    answer: &'a Answer,
}

/// The name under which the answer to a question is kept: 16 hexadecimal digits. Different questions may have the same name, if
/// only once in a long while; the text tells them apart.
pub fn name(model: &str, question: &Question) -> String {
    let text = question.text();
    format!("{:016x}", hash(model.bytes().chain([0]).chain(text.bytes())))
}

/// FNV-1a of 64 bits.
pub fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The text to keep.
///
/// # Errors
///
/// If the answer has a number that is not finite, which no text could give back.
pub fn encode(model: &str, question: &Question, answer: &Answer) -> Result<String, Failure> {
    let text = serde_json::to_string(&Keeping { model, question: &question.text(), answer });
    let text = text.map_err(|error| Failure(format!("the answer cannot be kept: {error}")))?;
    if decode(&text, model, question).as_ref() == Some(answer) {
        Ok(text)
    } else {
        Err(Failure(format!("the answer has a number that is not finite: {answer:?}")))
    }
}

/// The answer in a text, if it is one of this model to this question.
pub fn decode(text: &str, model: &str, question: &Question) -> Option<Answer> {
    let kept: Kept = serde_json::from_str(text).ok()?;
    (kept.model == model && kept.question == question.text()).then_some(kept.answer)
}
