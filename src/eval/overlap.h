/* overlap: how much of a reference text a generated text has: ROUGE-L and chrF.
 *
 * ROUGE-L is the F1 of the longest common subsequence of words (runs of a-z and 0-9 after lower
 * case), in [0, 1], as the package rouge_score computes it without stemming. chrF is the F-score
 * (beta 2) of character n-grams of 1 to 6 characters, white space left out, in [0, 100], as
 * sacrebleu computes it for a sentence. */
#ifndef PESC_EVAL_OVERLAP_H
#define PESC_EVAL_OVERLAP_H

#include "base/status.h"
#include "jinja/pytext.h"

pesc_status overlap_rouge_l(slice prediction, slice reference, double *out);
pesc_status overlap_chrf(slice prediction, slice reference, double *out);

#endif
