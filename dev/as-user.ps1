# Run a command as a standard user of Windows, or as the administrator that a hosted runner is.
#
#   pwsh dev/as-user.ps1 user python -m mudroom doctor
#   pwsh dev/as-user.ps1 admin python -m mudroom doctor
#
# "user" makes an account of the group Users alone with a password that nobody is told, grants it this directory and
# Python's, runs the command by CreateProcessWithLogonW (Start-Process -Credential), prints its output, and removes the
# account. The exit status is the command's. For throw-away machines: permissions that were granted are not taken back.
# There is no param block: PowerShell would take the command's own options for its own.
$ErrorActionPreference = 'Stop'
$as, $program, $words = $args
if ($as -notin 'user', 'admin' -or -not $program) {
    [Console]::Error.WriteLine('usage: as-user.ps1 user|admin PROGRAM ARGUMENT...')
    exit 2
}
$path = (Get-Command -CommandType Application $program | Select-Object -First 1).Source
# A hosted runner's Python is closed to AppContainers, as below C:\Program Files it is not: ALL APPLICATION PACKAGES.
icacls (Split-Path $path) /grant '*S-1-15-2-1:(OI)(CI)RX' /T /Q | Out-Null
if ($as -eq 'admin') {
    & $path @words
    exit $LASTEXITCODE
}

$name = 'mudroom-' + (-join ((1..8) | ForEach-Object { '{0:x}' -f (Get-Random -Maximum 16) }))
$bytes = [byte[]]::new(24)
[Security.Cryptography.RandomNumberGenerator]::Fill($bytes)
$password = ConvertTo-SecureString ('aA1!' + [Convert]::ToBase64String($bytes)) -AsPlainText -Force
$here = (Get-Location).Path
$out, $err = 'out', 'err' | ForEach-Object { Join-Path $here "$name.$_" }
New-LocalUser -Name $name -Password $password | Out-Null
try {
    Add-LocalGroupMember -SID 'S-1-5-32-545' -Member $name # Users, whatever the language calls them
    icacls $here /grant "${name}:(OI)(CI)M" /T /Q | Out-Null
    icacls (Split-Path $path) /grant "${name}:(OI)(CI)RX" /T /Q | Out-Null
    $credential = [pscredential]::new("$env:COMPUTERNAME\$name", $password)
    $quoted = $words | ForEach-Object { '"' + ($_ -replace '(\\*)"', '$1$1\"' -replace '(\\+)$', '$1$1') + '"' }
    $options = @{
        FilePath = $path; ArgumentList = $quoted; Credential = $credential; LoadUserProfile = $true
        WorkingDirectory = $here; RedirectStandardOutput = $out; RedirectStandardError = $err; PassThru = $true
    }
    $process = Start-Process @options
    $null = $process.Handle # kept open: without it there is no exit code
    $process.WaitForExit()
    Get-Content $out, $err
    if ($process.ExitCode -eq 0xC0000142 -or $process.ExitCode -eq -1073741502) {
        [Console]::Error.WriteLine('as-user.ps1: the account has no desktop here (0xC0000142): nothing was tried')
    }
    exit $process.ExitCode
} finally {
    Remove-LocalUser -Name $name
    Remove-Item -ErrorAction SilentlyContinue $out, $err
}
