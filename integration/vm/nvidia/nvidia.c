// SPDX-License-Identifier: GPL-2.0
/*
 * A driver with the name of NVIDIA's and, of all that NVIDIA's does, what matters to whoever
 * unbinds it: while a process has /dev/nvidiaN open, or the GPU is in persistence mode, remove
 * does not return, and nothing interrupts it (open-gpu-kernel-modules, nv_pci_remove_helper in
 * kernel-open/nvidia/nv-pci.c, which waits for a usage count of 0).
 *
 * As there, /proc/driver/nvidia/gpus/ADDRESS/information shows the GPU's minor number, the nodes
 * have the major number 195 and belong to no class, and opening the control node, number 255,
 * uses no GPU. The file persistence beside information is of this driver alone: the tests'
 * nvidia-smi reads and writes it.
 */
#include <linux/atomic.h>
#include <linux/cdev.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#define MAJOR_NUMBER 195
#define MINORS 256
#define CONTROL 255
#define GPUS 8

struct gpu {
	struct pci_dev *function; /* NULL: the minor number is free */
	struct proc_dir_entry *dir;
	atomic_t users;
	int persistent;
};

static struct gpu gpus[GPUS];
static DEFINE_MUTEX(lock); /* of gpus[].function */
static struct proc_dir_entry *top, *all;
static struct cdev nodes;

static int nodes_open(struct inode *inode, struct file *file)
{
	unsigned int minor = iminor(inode);
	int err = -ENODEV;

	if (minor == CONTROL)
		return 0;
	mutex_lock(&lock);
	if (minor < GPUS && gpus[minor].function) {
		atomic_inc(&gpus[minor].users);
		file->private_data = &gpus[minor];
		err = 0;
	}
	mutex_unlock(&lock);
	return err;
}

static int nodes_release(struct inode *inode, struct file *file)
{
	struct gpu *gpu = file->private_data;

	if (gpu)
		atomic_dec(&gpu->users);
	return 0;
}

static const struct file_operations nodes_ops = {
	.owner = THIS_MODULE,
	.open = nodes_open,
	.release = nodes_release,
};

static int information_show(struct seq_file *file, void *unused)
{
	struct gpu *gpu = file->private;

	seq_printf(file, "Model: \t\t Quadro K4200\nBus Location: \t %s\nDevice Minor: \t %d\n",
		   pci_name(gpu->function), (int)(gpu - gpus));
	return 0;
}

static int persistence_show(struct seq_file *file, void *unused)
{
	struct gpu *gpu = file->private;

	seq_printf(file, "%d\n", READ_ONCE(gpu->persistent));
	return 0;
}

static int persistence_open(struct inode *inode, struct file *file)
{
	return single_open(file, persistence_show, pde_data(inode));
}

static ssize_t persistence_write(struct file *file, const char __user *text, size_t length, loff_t *at)
{
	struct gpu *gpu = pde_data(file_inode(file));
	int err = kstrtoint_from_user(text, length, 10, &gpu->persistent);

	return err ? err : length;
}

static const struct proc_ops persistence_ops = {
	.proc_open = persistence_open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_write = persistence_write,
	.proc_release = single_release,
};

static int probe(struct pci_dev *function, const struct pci_device_id *id)
{
	struct gpu *gpu;
	int err = -ENOSPC;

	mutex_lock(&lock);
	for (gpu = gpus; gpu < gpus + GPUS && gpu->function; gpu++)
		;
	if (gpu < gpus + GPUS) {
		atomic_set(&gpu->users, 0);
		gpu->persistent = 0;
		gpu->function = function;
		err = 0;
	}
	mutex_unlock(&lock);
	if (err)
		return err;
	gpu->dir = proc_mkdir(pci_name(function), all);
	proc_create_single_data("information", 0444, gpu->dir, information_show, gpu);
	proc_create_data("persistence", 0644, gpu->dir, &persistence_ops, gpu);
	pci_set_drvdata(function, gpu);
	return 0;
}

static void remove(struct pci_dev *function)
{
	struct gpu *gpu = pci_get_drvdata(function);

	/*
	 * Not pci_err: systemd-journald reads the uevent of the device that a message names, which
	 * waits for the lock of the device, and so for the end of this function. Services could then
	 * not be stopped.
	 */
	if (atomic_read(&gpu->users) || READ_ONCE(gpu->persistent))
		pr_err("nvidia: %s: removed while it is in use\n", pci_name(function));
	while (atomic_read(&gpu->users) || READ_ONCE(gpu->persistent))
		msleep(100);
	mutex_lock(&lock);
	gpu->function = NULL;
	mutex_unlock(&lock);
	proc_remove(gpu->dir);
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID), .class = PCI_BASE_CLASS_DISPLAY << 16, .class_mask = 0xff << 16 },
	{}
};

static struct pci_driver driver = {
	.name = "nvidia",
	.id_table = ids,
	.probe = probe,
	.remove = remove,
};

static int __init load(void)
{
	int err;

	top = proc_mkdir("driver/nvidia", NULL);
	all = proc_mkdir("gpus", top);
	if (!all)
		return -ENOMEM;
	err = register_chrdev_region(MKDEV(MAJOR_NUMBER, 0), MINORS, "nvidia");
	if (err)
		goto no_region;
	cdev_init(&nodes, &nodes_ops);
	err = cdev_add(&nodes, MKDEV(MAJOR_NUMBER, 0), MINORS);
	if (err)
		goto no_nodes;
	err = pci_register_driver(&driver);
	if (!err)
		return 0;
	cdev_del(&nodes);
no_nodes:
	unregister_chrdev_region(MKDEV(MAJOR_NUMBER, 0), MINORS);
no_region:
	proc_remove(top);
	return err;
}

static void __exit unload(void)
{
	pci_unregister_driver(&driver);
	cdev_del(&nodes);
	unregister_chrdev_region(MKDEV(MAJOR_NUMBER, 0), MINORS);
	proc_remove(top);
}

module_init(load);
module_exit(unload);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("NVIDIA's driver, as far as unbinding it goes, for tests");
