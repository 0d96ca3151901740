package manifest

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxCronJobName is the maximum length of the name of a CronJob, which its Jobs have with a time after it.
const maxCronJobName = 52

// decodeWorkloadAs reads an object as a T, and adds it to the file as a Workload if it is valid.
func decodeWorkloadAs[T any, P interface {
	*T
	runtime.Object
	metav1.Object
}](p *parser, n node, kind string, partsOf func(P) workloadParts) {
	before := len(p.file.Objects)
	var parts workloadParts
	decodeAs(p, n, kind, func(o P) {
		parts = partsOf(o)
		setWorkloadDefaults(kind, parts)
	}, func(P) field.ErrorList { return validateWorkload(kind, parts) })
	if len(p.file.Objects) == before {
		return
	}
	version, _ := workloadVersion(kind)
	p.file.Objects[before].Value = &Workload{PodTemplate: corev1.PodTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: version.String(), Kind: kind},
		ObjectMeta: *parts.meta, Template: *parts.template}}
}

// setWorkloadDefaults sets metadata, and the labels that a Job's pods have from its controller, whose values are known.
func setWorkloadDefaults(kind string, o workloadParts) {
	setMetaDefaults(kind, o.meta)
	if o.template != nil {
		setPodSpecDefaults(&o.template.Spec)
	}
	if kind != kindJob {
		return
	}
	if o.template.Labels == nil {
		o.template.Labels = map[string]string{}
	}
	for _, k := range []string{batchv1.JobNameLabel, "job-name"} {
		o.template.Labels[k] = o.meta.Name
	}
}

func validateWorkload(kind string, o workloadParts) field.ErrorList {
	metadata, spec := field.NewPath("metadata"), field.NewPath(o.spec)
	errs := apivalidation.ValidateObjectMeta(o.meta, true, apivalidation.NameIsDNSSubdomain, metadata)
	if kind == kindCronJob && len(o.meta.Name) > maxCronJobName {
		errs = append(errs, field.TooLong(metadata.Child("name"), o.meta.Name, maxCronJobName))
	}
	if o.template == nil {
		return append(errs, field.Required(spec.Child("template"), ""))
	}
	errs = append(errs, validateTemplate(o.template, spec.Child("template"))...)
	return append(errs, validateWorkloadSelector(kind, o, spec)...)
}

func validateTemplate(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	metadata := path.Child("metadata")
	errs := metav1validation.ValidateLabels(t.Labels, metadata.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, metadata.Child("annotations"))...)
	return append(errs, validatePodSpec(&t.Spec, path.Child("spec"))...)
}

// validateWorkloadSelector requires a selector that the pods match. Jobs have one by themselves.
func validateWorkloadSelector(kind string, o workloadParts, spec *field.Path) field.ErrorList {
	path := spec.Child("selector")
	if o.selector == nil {
		if kind == kindJob || kind == kindCronJob {
			return nil
		}
		return field.ErrorList{field.Required(path, "")}
	}
	errs := metav1validation.ValidateLabelSelector(o.selector, metav1validation.LabelSelectorValidationOptions{}, path)
	if len(errs) > 0 {
		return errs
	}
	if len(o.selector.MatchLabels)+len(o.selector.MatchExpressions) == 0 {
		return field.ErrorList{field.Invalid(path, o.selector, "empty selector is invalid for "+kind)}
	}
	selector, err := metav1.LabelSelectorAsSelector(o.selector)
	if err != nil {
		return field.ErrorList{field.Invalid(path, o.selector, err.Error())}
	}
	if !selector.Matches(labels.Set(o.template.Labels)) {
		return field.ErrorList{field.Invalid(spec.Child("template", "metadata", "labels"), o.template.Labels,
			"`selector` does not match template `labels`")}
	}
	return nil
}
