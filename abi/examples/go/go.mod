// SPDX-License-Identifier: Apache-2.0
module example.org/score

go 1.19
