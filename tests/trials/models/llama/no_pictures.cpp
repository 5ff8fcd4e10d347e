// What the server asks of its picture and audio library at start, answered with "there is none".
// The rest of that library is filled in by llama.sh: it is reached only with a projector loaded.
#include <cstring>
#include <map>

#include "mtmd-helper.h"
#include "mtmd.h"

template <typename T> static T empty() {
    T value;
    std::memset(&value, 0, sizeof value);
    return value;
}

mtmd_context_params mtmd_context_params_default() { return empty<mtmd_context_params>(); }
mtmd_helper_init_opt mtmd_helper_init_opt_default() { return empty<mtmd_helper_init_opt>(); }
mtmd_caps mtmd_get_cap_from_file(const char *) { return empty<mtmd_caps>(); }
bool mtmd_support_vision(const mtmd_context *) { return false; }
bool mtmd_support_audio(const mtmd_context *) { return false; }
void mtmd_free(mtmd_context *) {}
void mtmd_helper_log_set(ggml_log_callback, void *) {}
std::map<ggml_backend_dev_t, size_t> mtmd_get_memory_usage(const char *, mtmd_context_params) {
    return {};
}
