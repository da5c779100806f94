//! The instructions of a program in the kernel, put together by hand: with labels, so that jumps need not be counted.
//!
//! Source: RFC 9669 (BPF's instructions).

use std::os::fd::{AsRawFd, BorrowedFd};

/// An instruction: operation, registers (destination in the low half), offset, constant.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    operation: u8,
    registers: u8,
    offset: i16,
    constant: i32,
}

/// A register. R0 holds results, R1 to R5 arguments, and calls spoil these; R6 to R9 stay; R10 is the end of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R6 = 6,
    R7,
    R8,
    R9,
    R10,
}

/// How many bytes a load or a store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Word4 = 0x00,
    Word2 = 0x08,
    Byte = 0x10,
    Word8 = 0x18,
}

/// What is done with two numbers of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    Plus = 0x00,
    And = 0x50,
    ShiftRight = 0x70,
    Move = 0xb0,
}

/// When a jump is taken; numbers have no sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Equal = 0x10,
    Greater = 0x20,
    AtLeast = 0x30,
    Differs = 0x50,
    Less = 0xa0,
}

/// What a program may call, as `linux/bpf.h` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Helper {
    LookUp = 1,
    RedirectMap = 51,
    BufferLength = 188,
}

/// A place in a program that jumps lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A program in the making.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    instructions: Vec<Instruction>,
    /// Where each label is, once it is set.
    labels: Vec<Option<usize>>,
    /// Jumps, and where each leads.
    jumps: Vec<(usize, Label)>,
}

/// What the second operand is: a constant (`BPF_K`), or a register (`BPF_X`).
const OF_REGISTER: u8 = 0x08;

impl Assembly {
    fn put(&mut self, operation: u8, to: Register, from: Register, offset: i16, constant: i32) {
        let registers = to as u8 | (from as u8) << 4;
        self.instructions.push(Instruction { operation, registers, offset, constant });
    }

    /// `to = *(from + offset)`.
    pub(super) fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.put(0x61 | width as u8, to, from, offset, 0);
    }

    /// `*(to + offset) = from`.
    pub(super) fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.put(0x63 | width as u8, to, from, offset, 0);
    }

    /// `*(to + offset) = constant`.
    pub(super) fn store_constant(&mut self, width: Width, to: Register, offset: i16, constant: i32) {
        self.put(0x62 | width as u8, to, Register::R0, offset, constant);
    }

    /// `to = to SUM from`.
    pub(super) fn compute(&mut self, sum: Sum, to: Register, from: Register) {
        self.put(0x07 | OF_REGISTER | sum as u8, to, from, 0, 0);
    }

    /// `to = to SUM constant`.
    pub(super) fn compute_constant(&mut self, sum: Sum, to: Register, constant: i32) {
        self.put(0x07 | sum as u8, to, Register::R0, 0, constant);
    }

    /// The low 16 bits of `to`, in network byte order from the machine's, or the other way round.
    pub(super) fn swap_to_network(&mut self, to: Register) {
        self.put(0xdc, to, Register::R0, 0, 16);
    }

    /// `to` = a map.
    pub(super) fn map(&mut self, to: Register, map: BorrowedFd<'_>) {
        // 64 bits in two instructions, the source register saying that it is a map's descriptor.
        self.put(0x18, to, Register::R1, 0, map.as_raw_fd());
        self.put(0, Register::R0, Register::R0, 0, 0);
    }

    /// `R0 = helper(R1, R2, R3)`.
    pub(super) fn call(&mut self, helper: Helper) {
        self.put(0x85, Register::R0, Register::R0, 0, helper as i32);
    }

    /// The end of the program, which gives R0.
    pub(super) fn exit(&mut self) {
        self.put(0x95, Register::R0, Register::R0, 0, 0);
    }

    /// A place that is not set yet.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The place is here.
    pub(super) fn set(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    /// Goes on there.
    pub(super) fn jump(&mut self, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.put(0x05, Register::R0, Register::R0, 0, 0);
    }

    /// Goes on there when two registers compare so.
    pub(super) fn jump_when(&mut self, left: Register, when: When, right: Register, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.put(0x05 | OF_REGISTER | when as u8, left, right, 0, 0);
    }

    /// The same with a constant.
    pub(super) fn jump_when_constant(&mut self, left: Register, when: When, right: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.put(0x05 | when as u8, left, Register::R0, 0, right);
    }

    /// The program.
    ///
    /// # Panics
    ///
    /// A jump leads to a label that was not set.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        for (jump, label) in self.jumps {
            let to = self.labels[label.0].expect("a label that jumps lead to is set");
            // From behind the jump; programs are far shorter than what 16 bits reach.
            self.instructions[jump].offset = (to as isize - jump as isize - 1) as i16;
        }
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::Register::*;
    use super::*;

    #[test]
    fn instructions_are_what_the_standard_says() {
        let mut program = Assembly::default();
        let end = program.label();
        program.load(Width::Word4, R2, R1, 16);
        program.store(Width::Word2, R10, -4, R7);
        program.store_constant(Width::Word8, R10, -8, 5);
        program.load(Width::Byte, R3, R6, 1);
        program.compute(Sum::Move, R6, R1);
        program.compute_constant(Sum::ShiftRight, R9, 16);
        program.jump_when(R4, When::Greater, R3, end);
        program.jump_when_constant(R0, When::Differs, 4, end);
        program.jump(end);
        program.swap_to_network(R4);
        program.call(Helper::RedirectMap);
        program.set(end);
        program.exit();
        let of = |operation, registers, offset, constant| Instruction { operation, registers, offset, constant };
        let expected = [
            of(0x61, 0x12, 16, 0),
            of(0x6b, 0x7a, -4, 0),
            of(0x7a, 0x0a, -8, 5),
            of(0x71, 0x63, 1, 0),
            of(0xbf, 0x16, 0, 0),
            of(0x77, 0x09, 0, 16),
            of(0x2d, 0x34, 4, 0),
            of(0x55, 0x00, 3, 4),
            of(0x05, 0, 2, 0),
            of(0xdc, 0x04, 0, 16),
            of(0x85, 0, 0, 51),
            of(0x95, 0, 0, 0),
        ];
        assert_eq!((program.finish(), size_of::<Instruction>()), (expected.to_vec(), 8));
    }
}
