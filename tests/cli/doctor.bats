load helper

@test "doctor: a line for each thing" {
    pesc doctor
    [ "$status" = 0 ]
    has '^ok +pesc +'
    has '^(ok|missing|note) +cuda +'
    has '^ok +memory +[0-9.]+ of [0-9.]+ GiB free$'
    free=$(sed -n 's/^ok *memory *\([0-9.]*\) of .*/\1/p' <<< "$output") # as plan counts it: what files hold is free
    available=$("$PESC" plan "$BATS_TEST_DIRNAME/../golden/train/full/model" --method full --device cpu --json | sed 's/.*"available":\([0-9]*\).*/\1/')
    awk -v a="$free" -v b="$available" 'BEGIN { d = a - b / 1073741824; exit d * d > 0.5 }'
    has '^(ok|note) +mpi +.*mpirun'
    # beside no CUDA part, the sentence to its end
    cp "$PESC" "$BATS_TEST_TMPDIR/pesc"
    [[ $("$BATS_TEST_TMPDIR/pesc" doctor) == *"or use cpu"* ]]
}

@test "doctor: JSON" {
    pesc doctor --json
    [ "$status" = 0 ]
    has '^\{"version":"[0-9.]+","checks":\[\{"name":"[^"]+","state":"(ok|missing|note)","detail":"[^"]*"\}'
}

@test "doctor: takes no argument" {
    pesc doctor x
    fails 2 'doctor: unexpected argument "x"; usage: pesc doctor '
}

@test "doctor: --kernels lists the product kernels of the CPU and of a GPU" {
    pesc doctor --kernels
    [ "$status" = 0 ]
    has '^device +op +kernel +rows +layouts +types +hardware +method$'
    has '^cpu +matmul +gemm_simd +any +NT NN TN +f32 x f32\|bf16\|nf4\|gguf -> f32\|bf16 +avx512'
    has '; this machine$'
    has '^cuda +matmul +nf4_gemv +1-8 +NT +bf16 x nf4 -> f32\|bf16 +sm_80\+ +.*; needs k % 64 == 0'
    has '^cuda +grouped_matmul +grouped_wgmma +any +NT NN TN +bf16 x bf16 -> f32\|bf16 +sm_90 '
}

@test "doctor: --kernels needs no CUDA part" {
    pesc doctor --kernels
    local all=$output
    cp "$PESC" "$BATS_TEST_TMPDIR/pesc"
    run "$BATS_TEST_TMPDIR/pesc" doctor --kernels
    [ "$status" = 0 ]
    [ "$output" = "$all" ]
}

@test "doctor: --kernels as JSON" {
    pesc doctor --kernels --json
    [ "$status" = 0 ]
    has '^\[\{"device":"cpu","op":"matmul","name":"[a-z_]+","rows":"[0-9a-z-]+","layouts":"[A-Z ]+","types":'
}
