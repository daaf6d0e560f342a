// SPDX-License-Identifier: Apache-2.0
#pragma once

// Blocks that are allocated now, by whatever means.
long live_blocks();
